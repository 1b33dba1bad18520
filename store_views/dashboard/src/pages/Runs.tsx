/** Every run: where it is, and its rewards as a small curve. */

import { useMemo, useState } from "react";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { type RunRow, runsQuery } from "../api/runs";
import { count, figure, percent, plural } from "../format";
import { Ago, Message, Panel, Show, Spark, Status } from "../ui/basics";
import { type Column, DataTable } from "../ui/DataTable";
import { comparedAs } from "./compared";
import styles from "./pages.module.css";

const columnsFor = (chosen: readonly string[], toggle: (run: string) => void): Column<RunRow>[] => [
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
  {
    id: "compare",
    header: "Compare",
    cell: (row) => (
      <input type="checkbox" aria-label={`Compare ${row.run_id || "no run named"}`} checked={chosen.includes(row.run_id)} onChange={() => toggle(row.run_id)} />
    ),
  },
];

/** As many as the curves have colours. */
const COMPARED_MAX = 6;

export function Runs() {
  const query = useQuery(runsQuery);
  const [chosen, setChosen] = useState<readonly string[]>([]);
  const columns = useMemo(() => {
    const toggle = (run: string) => setChosen(chosen.includes(run) ? chosen.filter((one) => one !== run) : [...chosen, run].slice(-COMPARED_MAX));
    return columnsFor(chosen, toggle);
  }, [chosen]);
  const [first, ...others] = chosen;
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
                Rollouts appear here as soon as a trainer enqueues them: <code>make demo</code> makes some, and so does <code>lightstream train</code>.
              </span>
            </Message>
          ) : (
            <Panel
              title={plural(rows.length, "run")}
              flush
              note={
                first !== undefined && others.length > 0 ? (
                  <Link to="/training" search={{ run: first, compare: comparedAs(others) }}>
                    Compare {chosen.length} runs
                  </Link>
                ) : (
                  "tick two or more to compare them"
                )
              }
            >
              <DataTable label="Runs" rows={rows} columns={columns} rowKey={(row) => row.run_id ?? ""} />
            </Panel>
          )
        }
      </Show>
    </>
  );
}
