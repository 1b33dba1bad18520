/** What a rollout came to, at one glance: the way back, its figures, and the task beside the answer. */

import { type ReactNode, useEffect } from "react";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";

import { groupQuery, type Member } from "../api/groups";
import type { Explained } from "../api/rollouts";
import { count, duration, figure, prettyJson } from "../format";
import { Ago, Panel, Status, Text } from "../ui/basics";
import { Copy } from "../ui/Copy";
import { onKeys } from "../ui/keys";
import ui from "../ui/ui.module.css";
import { responseText } from "./Messages";
import styles from "./pages.module.css";

export function RolloutHead({ found }: { found: Explained }) {
  const { rollout } = found;
  const group = rollout.group_id ?? rollout.rollout_id;
  const members = useQuery(groupQuery(group, rollout.run_id)).data ?? [];
  const own = members.find((member) => member.rollout_id === rollout.rollout_id);
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
        {own?.step != null && (
          <>
            <Link to="/training" search={{ run: rollout.run_id, step: own.step }}>
              step {own.step}
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
        {figuresOf(found, own, members).map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      <Panel title="Task and answer">
        <div className={styles["sideBySide"]}>
          <section aria-label="Task">
            <h3>What was asked</h3>
            <Text>{prettyJson(rollout.input_json)}</Text>
          </section>
          <section aria-label="Answer">
            <h3>The last answer</h3>
            {responseText(own?.response_json ?? null) ? <Text>{responseText(own?.response_json ?? null)}</Text> : <p className={ui["muted"]}>No answer recorded.</p>}
          </section>
        </div>
      </Panel>
    </>
  );
}

function figuresOf(found: Explained, own: Member | undefined, members: Member[]): [string, ReactNode][] {
  const rewards = members.flatMap((member) => (member.reward === null ? [] : [member.reward]));
  const mean = rewards.length > 1 ? rewards.reduce((total, reward) => total + reward, 0) / rewards.length : null;
  const better = mean === null || own?.reward == null ? null : own.reward - mean;
  const sum = (values: (number | null)[]) => values.reduce<number>((total, value) => total + (value ?? 0), 0);
  const prompt = sum(found.calls.map((call) => call.prompt_tokens));
  const response = sum(found.calls.map((call) => call.response_tokens));
  return [
    ["Reward", figure(own?.reward)],
    ["To the group's mean", better === null ? "–" : `${better > 0 ? "+" : ""}${figure(better)}`],
    ["Step", own?.step == null ? "–" : count(own.step)],
    ["Policy", own?.policy_version == null ? "–" : count(own.policy_version)],
    ["Calls", count(found.calls.length)],
    ["Tokens", `${count(prompt)} → ${count(response)}`],
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
