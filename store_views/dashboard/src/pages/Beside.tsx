/** Two rollouts beside each other: rewards, and what was said, with the first difference marked. */

import { useMemo } from "react";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { conversationQuery } from "../api/rollouts";
import { figure } from "../format";
import { Message, Panel, Show } from "../ui/basics";
import { Select } from "../ui/Select";
import ui from "../ui/ui.module.css";
import { firstDifference, turnsOf } from "./turns";
import { LeftOut, Turns } from "./Conversation";
import styles from "./pages.module.css";

export interface Candidate {
  rollout_id: string;
  run_id: string;
  reward: number | null;
  policy_version: number | null;
}

interface BesideProps {
  rollouts: readonly Candidate[];
  a: string | undefined;
  b: string | undefined;
  onChoose: (pair: { a: string; b: string }) => void;
}

/** At first the best and the worst. */
export function Beside({ rollouts, a, b, onChoose }: BesideProps) {
  const ranked = rollouts.filter((one) => one.reward !== null).toSorted((one, other) => (other.reward ?? 0) - (one.reward ?? 0));
  const first = rollouts.find((one) => one.rollout_id === a) ?? ranked[0] ?? rollouts[0];
  const second = rollouts.find((one) => one.rollout_id === b) ?? ranked.findLast((one) => one !== first) ?? rollouts.findLast((one) => one !== first);
  if (!first || !second || first === second) return null;
  const options = rollouts.map((one) => [one.rollout_id, `${one.rollout_id} (${figure(one.reward)})`] as const);
  const choose = (a: string, b: string) => onChoose({ a, b });
  return (
    <Panel title="Beside each other" note="the best and the worst, if none is chosen">
      <div className={styles["filters"]}>
        <Select label="One" value={first.rollout_id} options={options} onChange={(id) => choose(id, second.rollout_id)} />
        <Select label="Other" value={second.rollout_id} options={options} onChange={(id) => choose(first.rollout_id, id)} />
      </div>
      <Pair one={first} other={second} />
    </Panel>
  );
}

function Pair({ one, other }: { one: Candidate; other: Candidate }) {
  const queries = [useQuery(conversationQuery(one.rollout_id)), useQuery(conversationQuery(other.rollout_id))] as const;
  const [{ data: ofOne }, { data: ofOther }] = queries;
  const left = useMemo(() => turnsOf(ofOne ?? []), [ofOne]);
  const right = useMemo(() => turnsOf(ofOther ?? []), [ofOther]);
  const turns = [left, right];
  const differs = queries.every((query) => query.data) ? firstDifference(left, right) : undefined;
  const isAlike = queries.every((query) => query.data) && differs === undefined;
  return (
    <>
      <p className={ui["muted"]}>{isAlike ? "Nothing that was said differs." : differs === undefined ? "" : `They differ from turn ${differs + 1} on.`}</p>
      <div className={styles["sideBySide"]}>
        {[one, other].map((rollout, index) => (
          <section key={index} aria-label={rollout.rollout_id}>
            <h3>
              <Link to="/rollout" search={{ run: rollout.run_id, id: rollout.rollout_id }}>
                {rollout.rollout_id}
              </Link>
              {`: reward ${figure(rollout.reward)}${rollout.policy_version === null ? "" : `, policy ${rollout.policy_version}`}`}
            </h3>
            <Show query={queries[index] ?? queries[0]}>
              {(rows) =>
                turns[index]?.length ? (
                  <>
                    <LeftOut rows={rows} />
                    <Turns turns={turns[index] ?? []} rollout={rollout.rollout_id} differs={differs} />
                  </>
                ) : (
                  <Message title="No message of an LLM call was recorded." />
                )
              }
            </Show>
          </section>
        ))}
      </div>
    </>
  );
}
