/** What an agent and its models said, as one conversation: tools folded, and what training knows of each answer beside it. */

import { useMemo, useState } from "react";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { conversationQuery, type MessageRow } from "../api/rollouts";
import { count, figure, plural, prettyJson } from "../format";
import { Button, classes, Message, Panel, Show, Text } from "../ui/basics";
import { Copy } from "../ui/Copy";
import ui from "../ui/ui.module.css";
import { givenLine, type ToolUse, type Turn, turnsOf } from "./turns";
import styles from "./talk.module.css";

/** Of a longer conversation the begin and the end are shown until somebody asks for the rest. */
const SHOWN_MAX = 40;
const BEGIN = 6;
const END = 24;

export function Conversation({ rollout }: { rollout: string }) {
  const query = useQuery(conversationQuery(rollout));
  const turns = useMemo(() => turnsOf(query.data ?? []), [query.data]);
  return (
    <Panel
      title="Conversation"
      note={
        turns.length > 0 && (
          <>
            {plural(turns.length, "turn")} <Copy text={plainText(turns)} label="Copy the conversation" />
          </>
        )
      }
    >
      <Show query={query}>
        {(rows) =>
          turns.length === 0 ? (
            <Message title="No message of an LLM call was recorded." />
          ) : (
            <>
              <LeftOut rows={rows} />
              <Turns turns={turns} rollout={rollout} />
            </>
          )
        }
      </Show>
    </Panel>
  );
}

/** What a conversation lacks that is longer than an answer may be. */
export function LeftOut({ rows }: { rows: readonly MessageRow[] }) {
  const more = rows[0]?.left_out ?? 0;
  return more > 0 ? (
    <Message title={`The first ${plural(rows.length, "message")}, and not the ${count(more)} after them.`}>Open a later call under Spans for its own.</Message>
  ) : null;
}

/** All that was sent in one call, and its answer. */
export function CallMessages({ rollout, span }: { rollout: string; span: string }) {
  const query = useQuery(conversationQuery(rollout, span));
  return (
    <Show query={query}>
      {(rows) => (
        <>
          <LeftOut rows={rows} />
          <Turns turns={turnsOf(rows)} rollout={rollout} />
        </>
      )}
    </Show>
  );
}

interface TurnsProps {
  turns: readonly Turn[];
  rollout: string;
  /** Place of the turn that is marked as the first difference. */
  differs?: number | undefined;
}

export function Turns({ turns, rollout, differs }: TurnsProps) {
  const [whole, setWhole] = useState(false);
  const isCut = !whole && turns.length > SHOWN_MAX;
  const shown = isCut ? [...turns.slice(0, BEGIN), ...turns.slice(-END)] : turns;
  const isRetried = turns.some((turn) => (turn.attempt ?? 1) > 1);
  return (
    <ol className={styles["talk"]}>
      {shown.map((turn, index) => (
        <li key={turn.key} className={styles["said"]} data-differs={turn === turns[differs ?? -1] || undefined}>
          {isCut && index === BEGIN && (
            <div className={styles["between"]}>
              <Button onPress={() => setWhole(true)}>Show the {count(turns.length - BEGIN - END)} turns between</Button>
            </div>
          )}
          {isRetried && turn.attempt !== null && (
            <div className={styles["between"]}>{turn.attempt === 1 ? "the first attempt" : `attempt ${turn.attempt}`}</div>
          )}
          {turn.restarts && <div className={styles["between"]}>goes on with other messages than before</div>}
          {turn === turns[differs ?? -1] && <div className={styles["between"]}>the first difference</div>}
          <OneTurn turn={turn} rollout={rollout} />
        </li>
      ))}
    </ol>
  );
}

function OneTurn({ turn, rollout }: { turn: Turn; rollout: string }) {
  const isFolded = turn.role === "tools" || turn.role === "tool";
  return (
    <div className={classes(styles["turn"], turn.role === "assistant" && styles["byModel"])}>
      <div className={styles["role"]}>
        {turn.role}
        {turn.agent && turn.role === "assistant" && <span className={ui["muted"]}> {turn.agent}</span>}
      </div>
      <div className={styles["body"]}>
        {turn.reasoning && (
          <details>
            <summary>Reasoning</summary>
            <Text>{turn.reasoning}</Text>
          </details>
        )}
        {isFolded && turn.text ? (
          <details>
            <summary>{turn.role === "tools" ? "Tools that were offered" : firstLine(turn.text)}</summary>
            <Text>{prettyJson(turn.text)}</Text>
          </details>
        ) : (
          turn.text && <Text>{turn.text}</Text>
        )}
        {turn.tools.map((use, index) => (
          <Tool key={index} use={use} />
        ))}
        {turn.call && <OfCall call={turn.call} rollout={rollout} />}
      </div>
    </div>
  );
}

/** A tool's run: one line, and all of it once it is opened. */
function Tool({ use }: { use: ToolUse }) {
  return (
    <details className={styles["tool"]}>
      <summary>
        <strong>{use.name}</strong> <span className={styles["line"]}>{givenLine(use.given)}</span>
        <span className={styles["line"]}>{use.result === undefined ? " → no result" : ` → ${firstLine(use.result)}`}</span>
      </summary>
      <h4>Given</h4>
      <Text>{prettyJson(use.given)}</Text>
      {use.result !== undefined && (
        <>
          <h4>Result</h4>
          <Text>{prettyJson(use.result)}</Text>
        </>
      )}
    </details>
  );
}

/** Reward, mask and policy version of the call that gave an answer. */
function OfCall({ call, rollout }: { call: MessageRow; rollout: string }) {
  const trained = call.call_index !== null;
  return (
    <div className={styles["ofCall"]}>
      {call.error && <span className={styles["failed"]}>{call.error}</span>}
      {call.reward !== null && (
        <span className={styles["reward"]}>
          reward <strong>{figure(call.reward)}</strong>
        </span>
      )}
      {call.policy_version !== null && <span>policy {call.policy_version}</span>}
      {trained ? (
        <span>
          {call.sampled === call.response_tokens
            ? `${plural(call.response_tokens ?? 0, "token")}, all sampled by the policy`
            : `${count(call.sampled ?? 0)} of ${plural(call.response_tokens ?? 0, "token")} sampled by the policy`}
        </span>
      ) : (
        <span>no training data</span>
      )}
      <Link to="/rollout" search={(known) => ({ ...known, id: rollout, span: call.span_id, tab: trained ? "tokens" : "messages" })} replace hash="spans">
        {trained ? "tokens" : "its span"}
      </Link>
    </div>
  );
}

function firstLine(text: string): string {
  const line = text.trim().split("\n", 1)[0] ?? "";
  return line.length > LINE_MAX ? `${line.slice(0, LINE_MAX)} …` : line;
}

const LINE_MAX = 160;

function plainText(turns: readonly Turn[]): string {
  return turns
    .map((turn) => [`${turn.role}:`, turn.text, ...turn.tools.map((use) => `${use.name}(${use.given}) → ${use.result ?? ""}`)].filter(Boolean).join("\n"))
    .join("\n\n");
}
