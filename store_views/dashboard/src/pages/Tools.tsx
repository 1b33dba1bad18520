/** The tools of a run's agents and the errors of everything: how often, where, when, and what it costs in reward. */

import { useMemo } from "react";
import { useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";

import { type ErrorRow, errorsQuery, type ToolRow, toolsQuery } from "../api/agent";
import { count, duration, figure, percent, plural } from "../format";
import { Ago, Bars, Message, Panel, Show } from "../ui/basics";
import { type Column, DataTable } from "../ui/DataTable";
import ui from "../ui/ui.module.css";
import styles from "./pages.module.css";

export function Tools() {
  const { run = "" } = useSearch({ from: "/tools" });
  const tools = useQuery(toolsQuery(run));
  const errors = useQuery(errorsQuery(run));
  const columns = useMemo(() => [toolColumns(run), errorColumns(run)] as const, [run]);
  return (
    <>
      <title>{`Tools and errors of ${run || "no run named"} · Lightstream`}</title>
      <div className={styles["head"]}>
        <h1>Tools and errors</h1>
        <p>What the agents used and what failed, with the reward of the rollouts that it happened in.</p>
      </div>
      <Panel title="Tools" flush note={tools.data && plural(tools.data.length, "tool")}>
        <Show query={tools}>{(rows) => <DataTable label="Tools" rows={rows} columns={columns[0]} rowKey={(row) => row.tool_name} empty={<NoTools />} />}</Show>
      </Panel>
      <Panel title="Errors" flush note={errors.data && plural(errors.data.length, "kind")}>
        <Show query={errors}>
          {(rows) => (
            <DataTable label="Errors" rows={rows} columns={columns[1]} rowKey={(row) => `${row.place} ${row.name} ${row.error}`} empty="Nothing failed." />
          )}
        </Show>
      </Panel>
    </>
  );
}

function NoTools() {
  return (
    <Message title="No run of a tool was recorded.">
      <span>Tools are here where a span tells of each run: instrument the agent. Tools that are in its messages alone are in the conversations.</span>
    </Message>
  );
}

const toolColumns = (run: string): Column<ToolRow>[] => [
  {
    id: "tool",
    header: "Tool",
    cell: (row) => (
      <>
        <Link to="/rollouts" search={{ run, tool: row.tool_name }} className={styles["rowLink"] ?? ""}>
          {row.tool_name}
        </Link>
        {row.last_error && (
          <div className={styles["errorLine"]}>
            {row.error_rollout ? (
              <Link to="/rollout" search={{ run, id: row.error_rollout }}>
                {row.last_error}
              </Link>
            ) : (
              row.last_error
            )}
          </div>
        )}
      </>
    ),
  },
  { id: "calls", header: "Calls", number: true, cell: (row) => count(row.calls) },
  { id: "errors", header: "Errors", number: true, cell: (row) => (row.errors ? count(row.errors) : "–") },
  { id: "rate", header: "Error rate", number: true, cell: (row) => percent(row.errors, row.calls) },
  { id: "p50", header: "Half within", number: true, cell: (row) => duration(row.seconds_p50) },
  { id: "p95", header: "95 % within", number: true, cell: (row) => duration(row.seconds_p95) },
  { id: "share", header: "Share of time", number: true, cell: (row) => (row.seconds_share === null ? "–" : percent(row.seconds_share, 1)) },
  { id: "with", header: "Reward with", number: true, cell: (row) => figure(row.reward_with) },
  { id: "without", header: "without", number: true, cell: (row) => figure(row.reward_without) },
  { id: "failed", header: "where it failed", number: true, cell: (row) => figure(row.reward_failed) },
];

const errorColumns = (run: string): Column<ErrorRow>[] => [
  {
    id: "error",
    header: "Error",
    cell: (row) => (
      <>
        <Link to="/rollouts" search={{ run, error: row.error || row.name }}>
          {row.error || row.name}
        </Link>
        <div className={ui["muted"]}>{`${row.place} ${row.name}`}</div>
      </>
    ),
  },
  { id: "count", header: "Times", number: true, cell: (row) => count(row.count) },
  { id: "rollouts", header: "Rollouts", number: true, cell: (row) => count(row.rollouts) },
  {
    id: "when",
    header: "Over the time of the run",
    cell: (row) => <Bars values={row.counts} label={`${plural(row.count, "time")} over the time of the run`} />,
  },
  { id: "last", header: "Last", cell: (row) => <Ago nanos={row.last_unix_nano} /> },
  {
    id: "example",
    header: "One of them",
    cell: (row) => (
      <Link to="/rollout" search={{ run, id: row.example }} className={styles["rowLink"] ?? ""}>
        {row.example}
      </Link>
    ),
  },
];
