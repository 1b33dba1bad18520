/** What did not become training data, and records that nobody could read. */

import { useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";

import { type DropRow, dropsQuery, type LetterRow, lettersQuery } from "../api/operations";
import { type Meanings, meaningsQuery } from "../api/runs";
import { count, plural } from "../format";
import { Ago, Panel, Prose, Show, Text } from "../ui/basics";
import { type Column, DataTable } from "../ui/DataTable";
import ui from "../ui/ui.module.css";
import styles from "./pages.module.css";

export function Losses() {
  const { run } = useSearch({ from: "/losses" });
  const drops = useQuery(dropsQuery(run));
  const letters = useQuery(lettersQuery);
  const meanings = useQuery(meaningsQuery);
  return (
    <>
      <title>Dropped · Lightstream</title>
      <div className={styles["head"]}>
        <h1>Dropped</h1>
        <p>Nothing vanishes silently: each call that is no training data is here with its reason, and each record that could not be used.</p>
      </div>
      <Panel title="Dropped calls and rewards" flush note={run === undefined ? "of every run" : `of ${run || "no run named"}`}>
        <Show query={drops}>
          {(rows) => (
            <DataTable
              label="Dropped calls and rewards"
              rows={rows}
              columns={dropColumns(meanings.data)}
              rowKey={(_, index) => String(index)}
              empty="Nothing was dropped."
            />
          )}
        </Show>
      </Panel>
      <Panel title="Dead letters" flush note={letters.data ? plural(letters.data.length, "record") : ""}>
        <Show query={letters}>
          {(rows) => (
            <DataTable label="Dead letters" rows={rows} columns={LETTERS} rowKey={(_, index) => String(index)} empty="Every record of the log could be used." />
          )}
        </Show>
      </Panel>
    </>
  );
}

function dropColumns(meanings: Meanings | undefined): Column<DropRow>[] {
  return [
    { id: "reason", header: "Reason", cell: (row) => <code>{row.reason}</code> },
    {
      id: "meaning",
      header: "Meaning",
      cell: (row) => (
        <>
          <Prose>{meanings?.drops[row.reason] ?? ""}</Prose>
          {row.detail && <div className={ui["muted"]}>Last: {row.detail}</div>}
        </>
      ),
    },
    { id: "what", header: "What", cell: (row) => (row.is_llm_call ? "LLM call" : "span or reward") },
    { id: "count", header: "Count", number: true, cell: (row) => count(row.count) },
    {
      id: "last",
      header: "The last one",
      cell: (row) =>
        row.rollout_id ? (
          <Link to="/rollout" search={{ id: row.rollout_id, ...(row.span_id ? { span: row.span_id } : {}) }} className={styles["rowLink"] ?? ""}>
            {row.rollout_id}
          </Link>
        ) : (
          <span className={ui["mono"]}>{row.span_id ?? "–"}</span>
        ),
    },
    { id: "place", header: "In the log", cell: (row) => <span className={styles["rowLink"]}>{`spans/${row.log_partition} @ ${row.log_offset}`}</span> },
  ];
}

const LETTERS: Column<LetterRow>[] = [
  { id: "reason", header: "Reason", cell: (row) => <code>{row.reason}</code> },
  {
    id: "detail",
    header: "Detail",
    cell: (row) => (
      <>
        {row.detail}
        {row.value && (
          <details>
            <summary>{`the record (${count(row.value_size)} bytes)`}</summary>
            <Text>{row.value}</Text>
          </details>
        )}
      </>
    ),
  },
  {
    id: "origin",
    header: "The record",
    cell: (row) => <span className={ui["mono"]}>{`${row.origin_topic}/${row.origin_partition} @ ${row.origin_offset}`}</span>,
  },
  { id: "by", header: "Found by", cell: (row) => row.reported_by },
  { id: "when", header: "When", cell: (row) => <Ago nanos={row.observed_unix_nano} /> },
];
