/** Panels of a run: its settings, its named questions, and why rollouts did not train. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { namedQueries } from "../api/operations";
import { configurationQuery, type NotTrainedReason, type RunFigures } from "../api/runs";
import { count, percent, plural } from "../format";
import { Facts, Panel, Prose } from "../ui/basics";
import { type Column, DataTable } from "../ui/DataTable";
import styles from "./pages.module.css";

/** What the run is made with. */
export function Configuration({ run }: { run: string }) {
  const rows = useQuery(configurationQuery(run)).data ?? [];
  if (rows.length === 0) return null;
  return (
    <Panel title="Configuration" note={plural(rows.length, "setting")}>
      <div className={styles["tall"]} tabIndex={0} role="region" aria-label="Settings of the run">
        <Facts facts={rows.map(({ name, value }) => [name, <code key={name}>{value ?? "–"}</code>])} />
      </div>
    </Panel>
  );
}

/** Queries that have a name, each of which the page for SQL answers for this run. */
export function Questions({ run }: { run: string }) {
  const named = useQuery(namedQueries);
  const ofRuns = named.data?.filter(({ parameters }) => parameters.some(({ name }) => name === "run")) ?? [];
  if (run === "" || ofRuns.length === 0) return null; // no value of `$run` means rollouts without a run
  return (
    <Panel title="Ask about this run" note={plural(ofRuns.length, "question")}>
      <div className={styles["tall"]} tabIndex={0} role="group" aria-label="Named queries">
        <Facts
          facts={ofRuns.map(({ name, doc }) => [
            name,
            <Link key={name} to="/sql" search={{ run, query: name }}>
              <Prose>{doc}</Prose>
            </Link>,
          ])}
        />
      </div>
    </Panel>
  );
}

export function Reasons({ run, rows, figures }: { run: string; rows: NotTrainedReason[]; figures: RunFigures }) {
  const ended = figures.succeeded + figures.failed + figures.cancelled;
  const columns: Column<NotTrainedReason>[] = [
    {
      id: "reason",
      header: "Reason",
      cell: (row) => (
        <>
          <Link to="/rollouts" search={{ run, reason: row.reason_code }} className={styles["rowLink"] ?? ""}>
            {row.reason_code}
          </Link>
          <div>
            <Prose>{row.meaning}</Prose>
          </div>
        </>
      ),
    },
    { id: "next", header: "What to do", cell: (row) => <Prose>{row.next_step}</Prose> },
    { id: "count", header: "Rollouts", number: true, cell: (row) => count(row.count) },
    { id: "share", header: "Share", number: true, cell: (row) => percent(row.count, ended) },
  ];
  return (
    <DataTable
      label="Reasons why rollouts did not train"
      rows={rows}
      columns={columns}
      rowKey={(row) => row.reason_code}
      empty={ended === 0 ? "No rollout has finished yet." : "Every finished rollout was trained on."}
    />
  );
}
