/** One rollout: what it came to and why, its attempts, calls, rewards and spans, each with its place in the log. */

import { useEffect, useRef, useState } from "react";
import { usePrefetchQuery, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";

import { type Call, type Explained, explainQuery, type SpanRow, spanQuery, spansQuery, TEXT_CHARACTERS_MAX } from "../api/rollouts";
import { ApiError } from "../api/request";
import { meaningsQuery } from "../api/runs";
import { count, duration, exactTime, figure, plural, prettyJson } from "../format";
import { classes, Facts, Message, Panel, Prose, Show, Status, Text } from "../ui/basics";
import { type Column, DataTable } from "../ui/DataTable";
import { TabbedPanel } from "../ui/TabbedPanel";
import ui from "../ui/ui.module.css";
import { Failures, lastLine } from "./Failures";
import { Messages } from "./Messages";
import styles from "./pages.module.css";
import { RolloutHead } from "./RolloutHead";
import { ScoreForm, Scores } from "./ScoreForm";
import { spanKey, Timeline } from "./Timeline";
import { Tokens } from "./Tokens";

export function RolloutPage() {
  const { id = "" } = useSearch({ from: "/rollout" });
  const query = useQuery(explainQuery(id));
  usePrefetchQuery(spansQuery(id)); // beside it, not after it
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
      <RolloutHead found={found} />
      <Failures attempts={found.attempts} />
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
      <Spans found={found} />
      <div className={styles["columns"]}>
        <div className={styles["stack"]}>
          <Panel title="LLM calls" flush note={plural(found.calls.length, "call")}>
            <DataTable label="LLM calls" atFirst={CALLS_AT_FIRST} rows={found.calls} columns={CALLS} rowKey={(_, index) => String(index)} empty="No LLM call was recorded." />
          </Panel>
          <Rewards found={found} />
          <Scores rollout={rollout.rollout_id} />
          <Losses found={found} />
        </div>
        <div className={styles["stack"]}>
          <Panel title="Attempts" flush note={`${count(rollout.attempt_count)} of at most ${count(rollout.max_attempts)}`}>
            <DataTable label="Attempts" rows={found.attempts} columns={ATTEMPTS} rowKey={(row) => row.attempt_id} empty="None has begun." />
          </Panel>
          <Segments found={found} />
          <Panel title="In the log">
            <Facts
              facts={[
                ["State", place("rollouts", rollout.log_partition, rollout.log_offset)],
                ["Last event", place("rollout-events", rollout.log_partition, rollout.source_offset)],
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

function place(topic: string, partition: number, offset: number) {
  return <span className={ui["mono"]}>{`${topic}/${partition} @ ${offset}`}</span>;
}

function SpanPlace({ partition, offset }: { partition: number | null; offset: number | null }) {
  if (partition === null || offset === null || partition < 0 || offset < 0) return null;
  return <div className={ui["muted"]}>{place("spans", partition, offset)}</div>;
}

/** The chosen span: at once on the page, and in the address once somebody has settled on it. */
function useChosenSpan(): [string | undefined, (span: string) => void] {
  const search = useSearch({ from: "/rollout" });
  const navigate = useNavigate();
  const [chosen, setChosen] = useState(search.span);
  const inAddress = useRef(search.span);
  useEffect(() => {
    if (search.span === inAddress.current) return;
    inAddress.current = search.span;
    setChosen(search.span);
  }, [search.span]);
  useEffect(() => {
    if (chosen === inAddress.current) return undefined;
    const timer = window.setTimeout(() => {
      inAddress.current = chosen;
      void navigate({ to: "/rollout", search: (known) => ({ ...known, span: chosen }), replace: true, resetScroll: false });
    }, SETTLES_MS);
    return () => window.clearTimeout(timer);
  }, [chosen, navigate]);
  return [chosen, setChosen];
}

const SETTLES_MS = 250;

function Spans({ found }: { found: Explained }) {
  const [picked, pick] = useChosenSpan();
  const id = found.rollout.rollout_id;
  const query = useQuery(spansQuery(id));
  const spans = query.data?.spans ?? [];
  const chosen =
    spans.find((span) => spanKey(span) === picked || span.span_id === picked) ??
    spans.find((span) => span.is_llm_call) ??
    spans[0];
  return (
    <Panel title="What the agent did" flush note={`${plural(spans.length, "span")}; arrow keys move`}>
      <Show query={query}>
        {() =>
          spans.length === 0 ? (
            <div className={ui["panelBody"]}>
              <Message title="No span of it has come." />
            </div>
          ) : (
            <>
              <Timeline spans={spans} selected={chosen && spanKey(chosen)} onSelect={pick} />
              {chosen && <SpanDetails found={found} span={chosen} />}
            </>
          )
        }
      </Show>
    </Panel>
  );
}

function SpanDetails({ found, span }: { found: Explained; span: SpanRow }) {
  const rollout = found.rollout.rollout_id;
  const query = useQuery(spanQuery(rollout, span));
  const search = useSearch({ from: "/rollout" });
  const navigate = useNavigate();
  const showTab = (tab: string) =>
    void navigate({ to: "/rollout", search: (known) => ({ ...known, tab }), replace: true, resetScroll: false });
  const call = found.calls.find((one) => one.span_id === span.span_id);
  return (
    <div className={ui["panelBody"]} style={{ borderTop: "1px solid var(--line)" }}>
      <div className={styles["callHead"]}>
        <h3>{span.name}</h3>
        {span.status !== "unset" && <Status value={span.status} />}
        {call && <Status value={call.fate} />}
        {call?.reason && <code>{call.reason}</code>}
        <span className={ui["muted"]}>{place("spans", span.log_partition, span.log_offset)}</span>
      </div>
      <Show query={query}>
        {(detail) => {
          if (!detail) return <Message title="The view has no such span." />;
          const tabs: [string, string, () => React.ReactNode][] = [];
          if (detail.llm_request_json ?? detail.llm_response_json)
            tabs.push(["messages", "Messages", () => <Messages request={detail.llm_request_json} response={detail.llm_response_json} />]);
          if (span.is_llm_call) tabs.push(["tokens", "Tokens", () => <Tokens rollout={rollout} span={span.span_id} />]);
          tabs.push(["attributes", "Attributes", () => <Text>{prettyJson(detail.attributes ?? "{}")}</Text>]);
          if (span.is_llm_call) tabs.push(["score", "Score", () => <ScoreForm rollout={rollout} span={span.span_id} />]);
          if (detail.events && detail.events !== "[]") tabs.push(["events", "Events", () => <Text>{prettyJson(detail.events ?? "")}</Text>]);
          if (detail.links && detail.links !== "[]") tabs.push(["links", "Links", () => <Text>{prettyJson(detail.links ?? "")}</Text>]);
          tabs.push([
            "about",
            "About",
            () => (
              <Facts
                facts={[
                  ["Span", <code key="span">{span.span_id}</code>],
                  ["Parent", <code key="parent">{span.parent_id ?? "–"}</code>],
                  ["Trace", <code key="trace">{detail.trace_id}</code>],
                  ["Attempt", <code key="attempt">{detail.attempt_id ?? "–"}</code>],
                  ["Began", exactTime(detail.start_unix_nano)],
                  ["Ended", detail.end_unix_nano ? exactTime(detail.end_unix_nano) : "–"],
                  ["Written by", detail.scope_name ?? "–"],
                  ["Error", detail.llm_error_message ?? detail.status_message ?? "–"],
                ]}
              />
            ),
          ]);
          return (
            <>
              {detail.characters > TEXT_CHARACTERS_MAX && (
                <Message title={`Only the first ${count(TEXT_CHARACTERS_MAX)} of ${count(detail.characters)} characters are shown.`}>
                  <span>
                    <code>lightstream sql --format json</code> gives all of them.
                  </span>
                </Message>
              )}
              <TabbedPanel key={spanKey(span)} label="The span" tabs={tabs} selected={search.tab} onSelect={showTab} />
            </>
          );
        }}
      </Show>
    </div>
  );
}

/** Of thousands of calls; the timeline has all of them. */
const CALLS_AT_FIRST = 30;

const CALLS: Column<Call>[] = [
  {
    id: "span",
    header: "Call",
    cell: (row) => (
      <>
        <Link to="/rollout" search={(known) => ({ ...known, span: row.span_id })} replace className={styles["rowLink"] ?? ""}>
          {row.span_id.slice(0, 8)}
        </Link>
        <SpanPlace partition={row.log_partition} offset={row.log_offset} />
      </>
    ),
  },
  { id: "model", header: "Model", cell: (row) => row.model ?? "–" },
  {
    id: "tokens",
    header: "Tokens",
    number: true,
    cell: (row) => `${row.prompt_tokens === null ? "–" : count(row.prompt_tokens)} → ${row.response_tokens === null ? "–" : count(row.response_tokens)}`,
  },
  { id: "seconds", header: "Took", number: true, cell: (row) => duration(row.seconds) },
  {
    id: "fate",
    header: "Became",
    cell: (row) => (
      <>
        <Status value={row.fate} /> {row.reason && <code>{row.reason}</code>}
        {row.detail && <div className={ui["muted"]}>{row.detail}</div>}
      </>
    ),
  },
];

type Attempt = Explained["attempts"][number];

const ATTEMPTS: Column<Attempt>[] = [
  { id: "sequence", header: "No.", number: true, cell: (row) => count(row.attempt_sequence) },
  { id: "status", header: "Status", cell: (row) => <Status value={row.status} /> },
  {
    id: "what",
    header: "On",
    cell: (row) => (
      <>
        <span className={ui["mono"]}>{row.worker_id ?? "–"}</span>
        {row.error_type && (
          <div>
            <strong>{row.error_type}</strong> {lastLine(row.error_message)}
          </div>
        )}
      </>
    ),
  },
  { id: "seconds", header: "Took", number: true, cell: (row) => duration(row.seconds) },
];

type Reward = Explained["rewards"][number];

const REWARDS: Column<Reward>[] = [
  { id: "name", header: "Reward", cell: (row) => row.name || "(no name)" },
  { id: "value", header: "Value", number: true, cell: (row) => figure(row.value) },
  {
    id: "match",
    header: "Went to",
    cell: (row) => (
      <>
        {wentTo(row)}
        <SpanPlace partition={row.source_partition} offset={row.source_offset} />
      </>
    ),
  },
];

function wentTo(row: Reward): string {
  if (row.match === "none") return "nothing: it names no call of this attempt";
  return row.call_index === null ? "the whole trajectory" : `call ${row.call_index} (by ${row.match.replaceAll("_", " ")})`;
}

function Rewards({ found }: { found: Explained }) {
  return (
    <Panel title="Rewards" flush>
      <DataTable label="Rewards" rows={found.rewards} columns={REWARDS} rowKey={(_, index) => String(index)} empty="No reward: a missing one is not 0." />
    </Panel>
  );
}

function Losses({ found }: { found: Explained }) {
  const meanings = useQuery(meaningsQuery).data;
  const rows = [
    ...found.dropped.map((row) => ({ ...row, meaning: meanings?.drops[row.reason] })),
    ...found.notes.map((row) => ({ ...row, log_partition: null, log_offset: null, meaning: meanings?.notes[row.reason] })),
    ...found.shared.map((row) => ({ ...row, meaning: "The span was logged under several rollouts." })),
  ];
  if (rows.length === 0) return null;
  return (
    <Panel title="Dropped, and oddities" flush>
      <DataTable
        label="Dropped, and oddities"
        atFirst={CALLS_AT_FIRST}
        rows={rows}
        rowKey={(_, index) => String(index)}
        columns={[
          { id: "reason", header: "Reason", cell: (row) => <code>{row.reason}</code> },
          {
            id: "meaning",
            header: "Meaning",
            cell: (row) => (
              <>
                <Prose>{row.meaning ?? ""}</Prose>
                {row.detail && <div className={ui["muted"]}>{row.detail}</div>}
              </>
            ),
          },
          {
            id: "span",
            header: "Span",
            cell: (row) => (
              <>
                <code>{row.span_id.slice(0, 8)}</code>
                <SpanPlace partition={row.log_partition} offset={row.log_offset} />
              </>
            ),
          },
        ]}
      />
    </Panel>
  );
}

function Segments({ found }: { found: Explained }) {
  if (found.segments.length === 0) return null;
  return (
    <Panel title="Sequences for training" flush note="calls that continue each other's tokens are one">
      <DataTable
        label="Segments"
        rows={found.segments}
        rowKey={(row) => String(row.index)}
        columns={[
          { id: "calls", header: "Calls", cell: (row) => row.call_indexes.join(", ") },
          {
            id: "begins",
            header: "Begins because",
            cell: (row) => (
              <span className={classes(ui["mono"])}>
                {row.start_reason.replaceAll("_", " ")}
                {row.diverged_at < 0 ? "" : ` at token ${row.diverged_at}`}
              </span>
            ),
          },
          { id: "tokens", header: "Tokens", number: true, cell: (row) => count(row.tokens) },
          { id: "sampled", header: "Sampled", number: true, cell: (row) => count(row.sampled) },
        ]}
      />
    </Panel>
  );
}
