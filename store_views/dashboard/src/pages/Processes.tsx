/** Who works, since when nobody has heard of them, and how far the view is behind the log. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { type WorkerRow, workersQuery } from "../api/operations";
import { positionsQuery, silence } from "../api/runs";
import { count, millis, plural } from "../format";
import { Ago, Panel, Show, Status } from "../ui/basics";
import { type Column, DataTable } from "../ui/DataTable";
import ui from "../ui/ui.module.css";
import styles from "./pages.module.css";

/** Workers report every few seconds. */
const SILENT_MS = 60_000;

export function Processes() {
  const workers = useQuery(workersQuery);
  const positions = useQuery(positionsQuery);
  return (
    <>
      <title>Processes · Lightstream</title>
      <div className={styles["head"]}>
        <h1>Processes</h1>
        <p>
          Runners and trainers as they last reported. <code>lightstream status</code> shows every process of this machine.
        </p>
      </div>
      <Panel title="Workers" flush note={workers.data ? plural(workers.data.length, "worker") : ""}>
        <Show query={workers}>
          {(rows) => <DataTable label="Workers" rows={rows} columns={WORKERS} rowKey={(row) => row.worker_id} empty="No Runner or trainer has reported yet." />}
        </Show>
      </Panel>
      <Panel
        title="The view and the log"
        flush
        note={positions.data ? (silence(positions.data) ?? `${plural(positions.data.lag_records, "record")} behind`) : ""}
      >
        <Show query={positions}>
          {(data) => {
            const rows = Object.entries(data.end).flatMap(([topic, partitions]) =>
              Object.entries(partitions).map(([partition, end]) => ({
                topic,
                partition,
                end,
                at: data.positions[topic]?.[partition] ?? 0,
                lag: data.lag[topic]?.[partition] ?? 0,
              })),
            );
            return (
              <DataTable
                label="The view and the log"
                rows={rows}
                columns={PLACES}
                rowKey={(row) => `${row.topic}/${row.partition}`}
                empty="Nothing was heard of the log yet."
              />
            );
          }}
        </Show>
      </Panel>
    </>
  );
}

interface PlaceRow {
  topic: string;
  partition: string;
  end: number;
  at: number;
  lag: number;
}

const PLACES: Column<PlaceRow>[] = [
  { id: "topic", header: "Topic", cell: (row) => <span className={ui["mono"]}>{row.topic}</span> },
  { id: "partition", header: "Partition", number: true, cell: (row) => row.partition },
  { id: "at", header: "The view is at", number: true, cell: (row) => count(row.at) },
  { id: "end", header: "The log ends at", number: true, cell: (row) => count(row.end) },
  { id: "lag", header: "Behind", number: true, cell: (row) => (row.lag > 0 ? <Status value={count(row.lag)} tone="warn" /> : "0") },
];

const WORKERS: Column<WorkerRow>[] = [
  { id: "id", header: "Worker", cell: (row) => <span className={ui["mono"]}>{row.worker_id}</span> },
  { id: "kind", header: "Kind", cell: (row) => row.kind },
  { id: "host", header: "On", cell: (row) => `${row.host}, process ${row.pid}` },
  {
    id: "status",
    header: "Status",
    cell: (row) => {
      const silent = row.status !== "stopped" && Date.now() - millis(row.heartbeat_unix_nano) > SILENT_MS;
      return silent ? <Status value={`${row.status}, but silent`} tone="warn" /> : <Status value={row.status} />;
    },
  },
  {
    id: "works",
    header: "Works on",
    cell: (row) =>
      row.first_rollout === null ? (
        "–"
      ) : (
        <>
          <Link to="/rollout" search={{ id: row.first_rollout }} className={styles["rowLink"] ?? ""}>
            {row.first_rollout}
          </Link>
          {row.rollouts > 1 ? ` and ${count(row.rollouts - 1)} more` : ""}
        </>
      ),
  },
  { id: "heard", header: "Last heard", cell: (row) => <Ago nanos={row.heartbeat_unix_nano} /> },
];
