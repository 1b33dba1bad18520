/** One rollout: what it came to and why, its attempts, calls, rewards and spans, each with its place in the log. */

import { usePrefetchQuery, useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";

import { ApiError } from "../api/request";
import { conversationQuery, type Explained, explainQuery, spansQuery } from "../api/rollouts";
import { exactTime } from "../format";
import { Facts, Message, Panel, Prose, Show } from "../ui/basics";
import { Conversation } from "./Conversation";
import { Failures } from "./Failures";
import { LogPlace } from "./LogPlace";
import styles from "./pages.module.css";
import { RolloutHead } from "./RolloutHead";
import { Attempts, Calls, Losses, Rewards, Segments } from "./RolloutTables";
import { Scores } from "./ScoreForm";
import { Spans } from "./Spans";

export function RolloutPage() {
  const { id = "" } = useSearch({ from: "/rollout" });
  const query = useQuery(explainQuery(id));
  usePrefetchQuery(spansQuery(id)); // beside it, not after it
  usePrefetchQuery(conversationQuery(id));
  return (
    <>
      <title>{`${id} · Lightstream`}</title>
      {query.error instanceof ApiError && query.error.status === 404 ? (
        <>
          <div className={styles["head"]}>
            <h1>{id || "No rollout named"}</h1>
          </div>
          <Message bad title="The view knows no rollout of this id.">
            <span>
              It may not have been enqueued yet, or is of another data folder. <Link to="/rollouts">All rollouts</Link>
            </span>
          </Message>
        </>
      ) : (
        <Show query={query}>{(found) => <Explanation found={found} />}</Show>
      )}
    </>
  );
}

function Explanation({ found }: { found: Explained }) {
  const { rollout } = found;
  return (
    <>
      <RolloutHead found={found}>
        <Failures found={found} />
      </RolloutHead>
      <Panel title={found.reason_code ? "Why it did not train" : "What became of it"} note={found.reason_code && <code>{found.reason_code}</code>}>
        <p className={styles["conclusion"]}>
          <Prose>{sentence(found.conclusion)}</Prose>
        </p>
        {found.next_step && (
          <p className={styles["nextStep"]}>
            <Prose>{found.next_step}</Prose>
          </p>
        )}
      </Panel>
      <Conversation rollout={rollout.rollout_id} />
      <Spans found={found} />
      <div className={styles["columns"]}>
        <div className={styles["stack"]}>
          <Calls found={found} />
          <Rewards found={found} />
          <Scores rollout={rollout.rollout_id} />
          <Losses found={found} />
        </div>
        <div className={styles["stack"]}>
          <Attempts found={found} />
          <Segments found={found} />
          <Panel title="In the log">
            <Facts
              facts={[
                ["State", <LogPlace key="state" topic="rollouts" partition={rollout.log_partition} offset={rollout.log_offset} />],
                ["Last event", <LogPlace key="event" topic="rollout-events" partition={rollout.log_partition} offset={rollout.source_offset} />],
                ["Enqueued", exactTime(rollout.enqueued_unix_nano)],
                ["Ended", rollout.ended_unix_nano ? exactTime(rollout.ended_unix_nano) : "–"],
                ["Resources", rollout.resources_id ?? "the latest"],
              ]}
            />
          </Panel>
        </div>
      </div>
    </>
  );
}

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
}
