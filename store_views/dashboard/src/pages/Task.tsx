/** One task wherever it was tried: by run and policy version, and two of its rollouts beside each other. */

import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";

import { type TaskRow, type TriedRow, taskQuery, taskRolloutsQuery } from "../api/agent";
import { count, duration, figure, plural, taskLine } from "../format";
import { Message, Panel, Show, Status, Text } from "../ui/basics";
import { type Column, DataTable } from "../ui/DataTable";
import { Beside } from "./Beside";
import { candidatesOf } from "./tries";
import styles from "./pages.module.css";

export function Task() {
  const { id = "", a, b } = useSearch({ from: "/task" });
  const navigate = useNavigate();
  const query = useQuery(taskQuery(id));
  const lately = useQuery(taskRolloutsQuery(id));
  return (
    <>
      <title>Task · Lightstream</title>
      <div className={styles["head"]}>
        <h1>Task</h1>
        <p>The same input wherever it was tried, so that runs and policy versions can be compared on it.</p>
      </div>
      <Show query={query}>
        {(tries) =>
          tries.length === 0 ? (
            <Message title="The view knows no rollout of this task." />
          ) : (
            <>
              <Panel title="What was asked" note={plural(rolloutsOf(tries), "rollout")}>
                <Text>{taskLine(tries[0]?.input_json ?? "")}</Text>
              </Panel>
              <Panel title="By run and policy" flush>
                <DataTable
                  label="The task by run and policy"
                  rows={tries}
                  columns={BY_POLICY}
                  rowKey={(row) => JSON.stringify([row.run_id, row.policy_version])}
                />
              </Panel>
              <Show query={lately}>
                {(rows) => (
                  <>
                    <Beside
                      rollouts={candidatesOf(tries, rows)}
                      a={a}
                      b={b}
                      onChoose={(pair) => void navigate({ to: "/task", search: (known) => ({ ...known, ...pair }), replace: true, resetScroll: false })}
                    />
                    <Panel title="Its rollouts" flush note={rows.length < rolloutsOf(tries) && `the last ${count(rows.length)}`}>
                      <DataTable label="Rollouts of the task" rows={rows} columns={COLUMNS} rowKey={(row) => row.rollout_id} />
                    </Panel>
                  </>
                )}
              </Show>
            </>
          )
        }
      </Show>
    </>
  );
}

const rolloutsOf = (tries: readonly TriedRow[]) => tries[0]?.of_rollouts ?? 0;

const BY_POLICY: Column<TriedRow>[] = [
  {
    id: "run",
    header: "Run",
    cell: (row) => (
      <Link to="/run" search={{ run: row.run_id }}>
        {row.run_id || "no run named"}
      </Link>
    ),
  },
  { id: "policy", header: "Policy", number: true, cell: (row) => (row.policy_version === null ? "–" : count(row.policy_version)) },
  { id: "rollouts", header: "Rollouts", number: true, cell: (row) => count(row.rollouts) },
  { id: "reward", header: "Mean reward", number: true, cell: (row) => figure(row.reward) },
  {
    id: "range",
    header: "Lowest to highest",
    number: true,
    cell: (row) => (row.low === null ? "–" : `${figure(row.low)} to ${figure(row.high)}`),
  },
];

const COLUMNS: Column<TaskRow>[] = [
  {
    id: "rollout",
    header: "Rollout",
    cell: (row) => (
      <Link to="/rollout" search={{ run: row.run_id, id: row.rollout_id }} className={styles["rowLink"] ?? ""}>
        {row.rollout_id}
      </Link>
    ),
  },
  { id: "run", header: "Run", cell: (row) => row.run_id || "–" },
  { id: "policy", header: "Policy", number: true, cell: (row) => (row.policy_version === null ? "–" : count(row.policy_version)) },
  { id: "step", header: "Step", number: true, cell: (row) => (row.step === null ? "–" : count(row.step)) },
  { id: "status", header: "Status", cell: (row) => <Status value={row.status} /> },
  { id: "reward", header: "Reward", number: true, cell: (row) => figure(row.reward) },
  { id: "seconds", header: "Took", number: true, cell: (row) => duration(row.seconds) },
];
