/** One task wherever it was tried: by run and policy version, and two of its rollouts beside each other. */

import { useMemo } from "react";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";

import { type TaskRow, taskQuery } from "../api/agent";
import { count, duration, figure, plural, taskLine } from "../format";
import { Message, Panel, Show, Status, Text } from "../ui/basics";
import { type Column, DataTable } from "../ui/DataTable";
import { Beside } from "./Beside";
import styles from "./pages.module.css";

export function Task() {
  const { id = "", a, b } = useSearch({ from: "/task" });
  const navigate = useNavigate();
  const query = useQuery(taskQuery(id));
  return (
    <>
      <title>Task · Lightstream</title>
      <div className={styles["head"]}>
        <h1>Task</h1>
        <p>The same input wherever it was tried, so that runs and policy versions can be compared on it.</p>
      </div>
      <Show query={query}>
        {(rows) =>
          rows.length === 0 ? (
            <Message title="The view knows no rollout of this task." />
          ) : (
            <>
              <Panel title="What was asked" note={plural(rows.length, "rollout")}>
                <Text>{taskLine(rows[0]?.input_json ?? "")}</Text>
              </Panel>
              <ByPolicy rows={rows} />
              <Beside
                rollouts={rows}
                a={a}
                b={b}
                onChoose={(pair) => void navigate({ to: "/task", search: (known) => ({ ...known, ...pair }), replace: true, resetScroll: false })}
              />
              <Panel title="Its rollouts" flush>
                <DataTable label="Rollouts of the task" rows={rows} columns={COLUMNS} rowKey={(row) => row.rollout_id} />
              </Panel>
            </>
          )
        }
      </Show>
    </>
  );
}

interface Tried {
  run: string;
  policy: number | null;
  rollouts: number;
  rewards: number[];
}

/** By run and policy version, in the order of the rows. */
function tries(rows: readonly TaskRow[]): Tried[] {
  const found = new Map<string, Tried>();
  for (const row of rows) {
    const key = JSON.stringify([row.run_id, row.policy_version]);
    const tried = found.get(key) ?? { run: row.run_id, policy: row.policy_version, rollouts: 0, rewards: [] };
    tried.rollouts += 1;
    if (row.reward !== null) tried.rewards.push(row.reward);
    found.set(key, tried);
  }
  return [...found.values()];
}

const mean = (values: number[]) => (values.length === 0 ? null : values.reduce((sum, value) => sum + value, 0) / values.length);

const BY_POLICY: Column<Tried>[] = [
  {
    id: "run",
    header: "Run",
    cell: (row) => (
      <Link to="/run" search={{ run: row.run }}>
        {row.run || "no run named"}
      </Link>
    ),
  },
  { id: "policy", header: "Policy", number: true, cell: (row) => (row.policy === null ? "–" : count(row.policy)) },
  { id: "rollouts", header: "Rollouts", number: true, cell: (row) => count(row.rollouts) },
  { id: "reward", header: "Mean reward", number: true, cell: (row) => figure(mean(row.rewards)) },
  {
    id: "range",
    header: "Lowest to highest",
    number: true,
    cell: (row) => (row.rewards.length === 0 ? "–" : `${figure(Math.min(...row.rewards))} to ${figure(Math.max(...row.rewards))}`),
  },
];

function ByPolicy({ rows }: { rows: readonly TaskRow[] }) {
  const found = useMemo(() => tries(rows), [rows]);
  return (
    <Panel title="By run and policy" flush>
      <DataTable label="The task by run and policy" rows={found} columns={BY_POLICY} rowKey={(row) => JSON.stringify([row.run, row.policy])} />
    </Panel>
  );
}

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
