/** Every run: where it is, and its rewards as a small curve. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { type RunRow, runsQuery } from "../api/runs";
import { count, figure, percent, plural } from "../format";
import { Ago, Message, Panel, Show, Spark, Status } from "../ui/basics";
import { type Column, DataTable } from "../ui/DataTable";
import styles from "./pages.module.css";

const COLUMNS: Column<RunRow>[] = [
  {
    id: "run",
    header: "Run",
    cell: (row) => (
      <Link to="/run" search={{ run: row.run_id ?? "" }} className={styles["rowLink"] ?? ""}>
        {row.run_id || "no run named"}
      </Link>
    ),
  },
  {
    id: "state",
    header: "State",
    cell: (row) => (
      <>
        {row.state ? <Status value={row.state} /> : "–"}
        {row.error && <div className={styles["errorLine"]}>{row.error.split("\n")[0]}</div>}
      </>
    ),
  },
  {
    id: "curve",
    header: "Mean reward by step",
    cell: (row) => (
      <div style={{ width: 180 }}>
        <Spark values={row.rewards ?? []} label={`Mean reward by step, last ${figure(row.reward)}`} />
      </div>
    ),
  },
  { id: "reward", header: "Last", number: true, cell: (row) => figure(row.reward) },
  {
    id: "step",
    header: "Step",
    number: true,
    cell: (row) => (row.step === null ? "–" : row.steps_planned ? `${row.step} of ${row.steps_planned}` : row.step),
  },
  { id: "rollouts", header: "Rollouts", number: true, cell: (row) => count(row.rollouts ?? 0) },
  { id: "finished", header: "Finished", number: true, cell: (row) => percent(row.finished ?? 0, row.rollouts ?? 0) },
  { id: "failed", header: "Failed", number: true, cell: (row) => (row.failed ? count(row.failed) : "–") },
  { id: "last", header: "Last change", cell: (row) => <Ago nanos={row.last_unix_nano} /> },
];

export function Runs() {
  const query = useQuery(runsQuery);
  return (
    <>
      <title>Runs · Lightstream</title>
      <div className={styles["head"]}>
        <h1>Runs</h1>
        <p>A run trains an agent: rollouts are tried, rewarded, compared in groups, and each step updates the model.</p>
      </div>
      <Show query={query}>
        {(rows) =>
          rows.length === 0 ? (
            <Message title="No run has been seen yet.">
              <span>
                Rollouts appear here as soon as a trainer enqueues them: <code>make demo</code> makes some, and so does{" "}
                <code>lightstream train</code>.
              </span>
            </Message>
          ) : (
            <Panel title={plural(rows.length, "run")} flush>
              <DataTable label="Runs" rows={rows} columns={COLUMNS} rowKey={(row) => row.run_id ?? ""} />
            </Panel>
          )
        }
      </Show>
    </>
  );
}
