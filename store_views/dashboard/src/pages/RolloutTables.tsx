/** The tables of a rollout's page: calls, attempts, rewards, losses, and sequences for training. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import type { Call, Explained } from "../api/rollouts";
import { meaningsQuery } from "../api/runs";
import { count, duration, figure, plural } from "../format";
import { Panel, Prose, Status } from "../ui/basics";
import { type Column, DataTable } from "../ui/DataTable";
import ui from "../ui/ui.module.css";
import { lastLine } from "./Failures";
import { LogPlace } from "./LogPlace";
import styles from "./pages.module.css";

function SpanPlace({ partition, offset }: { partition: number | null; offset: number | null }) {
  return (
    <div>
      <LogPlace topic="spans" partition={partition} offset={offset} />
    </div>
  );
}

export function Calls({ found }: { found: Explained }) {
  return (
    <Panel title="LLM calls" flush note={plural(found.calls.length, "call")}>
      <DataTable
        label="LLM calls"
        atFirst={CALLS_AT_FIRST}
        rows={found.calls}
        columns={CALLS}
        rowKey={(_, index) => String(index)}
        empty="No LLM call was recorded."
      />
    </Panel>
  );
}

export function Attempts({ found }: { found: Explained }) {
  const { attempt_count: attempts, max_attempts: most } = found.rollout;
  return (
    <Panel title="Attempts" flush note={`${count(attempts)} of at most ${count(most)}`}>
      <DataTable label="Attempts" rows={found.attempts} columns={ATTEMPTS} rowKey={(row) => row.attempt_id} empty="None has begun." />
    </Panel>
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

export function Rewards({ found }: { found: Explained }) {
  return (
    <Panel title="Rewards" flush>
      <DataTable label="Rewards" rows={found.rewards} columns={REWARDS} rowKey={(_, index) => String(index)} empty="No reward: a missing one is not 0." />
    </Panel>
  );
}

interface LossRow {
  reason: string;
  detail: string;
  meaning: string | undefined;
  span_id: string;
  log_partition: number | null;
  log_offset: number | null;
}

/** What is no training data, and, folded, what is worth a note and cost nothing. */
export function Losses({ found }: { found: Explained }) {
  const meanings = useQuery(meaningsQuery).data;
  const rows: LossRow[] = [
    ...found.dropped.map((row) => ({ ...row, meaning: meanings?.drops[row.reason] })),
    ...found.shared.map((row) => ({ ...row, meaning: "The span was logged under several rollouts." })),
  ];
  const notes: LossRow[] = found.notes.map((row) => ({ ...row, log_partition: null, log_offset: null, meaning: meanings?.notes[row.reason] }));
  if (rows.length + notes.length === 0) return null;
  return (
    <Panel title={rows.length > 0 ? "Dropped, and oddities" : "Notes"} flush>
      {rows.length > 0 && <LossTable label="Dropped, and oddities" rows={rows} />}
      {notes.length > 0 && (
        <details className={ui["panelBody"]}>
          <summary>{`${plural(notes.length, "note")}: nothing is lost by them`}</summary>
          <LossTable label="Notes" rows={notes} />
        </details>
      )}
    </Panel>
  );
}

function LossTable({ label, rows }: { label: string; rows: LossRow[] }) {
  return <DataTable label={label} atFirst={CALLS_AT_FIRST} rows={rows} columns={LOSSES} rowKey={(_, index) => String(index)} />;
}

const LOSSES: Column<LossRow>[] = [
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
];

export function Segments({ found }: { found: Explained }) {
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
              <span className={ui["mono"]}>
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
