/** What a rollout came to, at one glance: the way back, its figures, what is put between, and the task beside the answer. */

import { type ReactNode, useEffect } from "react";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";

import { groupQuery, type Member } from "../api/groups";
import { type Explained, type Figures, rolloutFiguresQuery } from "../api/rollouts";
import { costLine, count, duration, figure, plural, prettyJson } from "../format";
import { Ago, Panel, Status, Text } from "../ui/basics";
import { Copy } from "../ui/Copy";
import { onKeys } from "../ui/keys";
import ui from "../ui/ui.module.css";
import { answerText } from "./turns";
import styles from "./pages.module.css";

export function RolloutHead({ found, children }: { found: Explained; children: ReactNode }) {
  const { rollout } = found;
  const group = rollout.group_id ?? rollout.rollout_id;
  const members = useQuery(groupQuery(group, rollout.run_id)).data ?? [];
  const own = members.find((member) => member.rollout_id === rollout.rollout_id);
  const figures = useQuery(rolloutFiguresQuery(rollout.rollout_id)).data ?? null;
  return (
    <>
      <nav aria-label="Where this is" className={styles["crumbs"]}>
        {rollout.run_id && (
          <>
            <Link to="/run" search={{ run: rollout.run_id }}>
              {rollout.run_id}
            </Link>{" "}
            ›{" "}
          </>
        )}
        {figures?.step != null && (
          <>
            <Link to="/training" search={{ run: rollout.run_id, step: figures.step }}>
              step {figures.step}
            </Link>{" "}
            ›{" "}
          </>
        )}
        <Link to="/group" search={{ run: rollout.run_id, id: group }}>
          {group}
        </Link>
        <Siblings rollout={rollout.rollout_id} members={members} />
      </nav>
      <div className={styles["head"]}>
        <h1>{rollout.rollout_id}</h1>
        <Status value={rollout.status} />
        <Copy text={rollout.rollout_id} label="Copy the id of the rollout" />
        <p>
          {rollout.mode === "train" ? "For training" : `For ${rollout.mode}`}. Enqueued <Ago nanos={rollout.enqueued_unix_nano} />.
        </p>
      </div>
      <dl className={styles["keyFigures"]}>
        {figuresOf(found, figures).map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      {children}
      <Panel title="Task and answer">
        <div className={styles["sideBySide"]}>
          <section aria-label="Task">
            <h3>What was asked</h3>
            <Text>{prettyJson(rollout.input_json)}</Text>
            {figures?.task && figures.same_task > 0 && (
              <Link to="/task" search={{ run: rollout.run_id, id: figures.task }}>
                {`The same task in ${plural(figures.same_task, "other rollout")}`}
              </Link>
            )}
          </section>
          <section aria-label="Answer">
            <h3>The last answer</h3>
            {answerText(own?.response_json ?? null) ? (
              <Text>{answerText(own?.response_json ?? null)}</Text>
            ) : (
              <p className={ui["muted"]}>No answer recorded.</p>
            )}
          </section>
        </div>
      </Panel>
    </>
  );
}

function figuresOf(found: Explained, figures: Figures | null): [string, ReactNode][] {
  const signed = (value: number) => `${value > 0 ? "+" : ""}${figure(value)}`;
  const { policy_first: first = null, policy_last: last = null, cost = null } = figures ?? {};
  const known: [string, ReactNode][] = [
    ["Reward", figure(figures?.reward)],
    ["To the group's mean", figures?.above_mean == null ? "–" : signed(figures.above_mean)],
  ];
  if (figures?.divided != null) known.push(["Advantage (GRPO)", signed(figures.divided)]);
  return [
    ...known,
    ["Step", figures?.step == null ? "–" : count(figures.step)],
    ["Policy", first === null || last === null ? "–" : first === last ? count(first) : `${count(first)} to ${count(last)}`],
    ["Calls", count(found.calls.length)],
    [
      "Tokens",
      `${figures?.prompt_tokens == null ? "–" : count(figures.prompt_tokens)} → ${figures?.response_tokens == null ? "–" : count(figures.response_tokens)}`,
    ],
    ["Cost", costLine(cost, figures?.calls_without_price ?? 0)],
    ["Took", duration(found.rollout.seconds)],
  ];
}

/** The other rollouts of the group, by links and by J and K. */
function Siblings({ rollout, members }: { rollout: string; members: Member[] }) {
  const navigate = useNavigate();
  const at = members.findIndex((member) => member.rollout_id === rollout);
  const next = at < 0 ? undefined : members[at + 1];
  const before = at < 0 ? undefined : members[at - 1];
  const show = (member: Member | undefined) => member && void navigate({ to: "/rollout", search: { run: member.run_id, id: member.rollout_id } });
  useEffect(() => onKeys({ j: () => show(next), k: () => show(before) }));
  if (at < 0 || members.length < 2) return null;
  return (
    <span className={ui["muted"]}>
      {" "}
      {`${at + 1} of ${members.length} `}
      {before && (
        <Link to="/rollout" search={{ run: before.run_id, id: before.rollout_id }} title="K">
          previous
        </Link>
      )}{" "}
      {next && (
        <Link to="/rollout" search={{ run: next.run_id, id: next.rollout_id }} title="J">
          next
        </Link>
      )}
    </span>
  );
}
