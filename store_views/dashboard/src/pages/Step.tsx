/** One training step: what it came to, what changed since another, and its groups. */

import { useMemo } from "react";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { type StepChange, stepChangesQuery } from "../api/agent";
import { type StepGroup, stepGroupsQuery } from "../api/groups";
import type { StepRow } from "../api/runs";
import { count, duration, figure, percent, taskLine } from "../format";
import { Button, classes, Facts, Panel, Show, Status } from "../ui/basics";
import { type Column, DataTable } from "../ui/DataTable";
import { Select } from "../ui/Select";
import ui from "../ui/ui.module.css";
import { type Change, changeKey, changesOf, difference } from "./changes";
import styles from "./pages.module.css";

interface StepProps {
  run: string;
  step: StepRow;
  /** All of the run. */
  steps: readonly StepRow[];
  before: number | undefined;
  onBefore: (step: number) => void;
  close: () => void;
}

export function Step({ run, step, steps, before, onBefore, close }: StepProps) {
  const groups = useQuery(stepGroupsQuery(run, step.step));
  const columns = useMemo(() => GROUPS(run), [run]);
  const earlier = steps.filter((row) => row.step < step.step && row.outcome !== "discarded").at(-1);
  const other = steps.find((row) => row.step === before) ?? earlier;
  return (
    <>
      <Panel title={`Step ${step.step}`} note={<Button onPress={close}>Close</Button>}>
        <Facts
          facts={[
            ["Outcome", <Status key="outcome" value={step.outcome} />],
            ["Took", duration(step.seconds)],
            ["From policy", step.policy_version === null ? "–" : String(step.policy_version)],
            ["Made resources", step.resources_id ?? "–"],
            ["Trained on", `${count(step.triplet_count)} calls of ${count(step.trajectory_count)} rollouts in ${count(step.group_count)} groups`],
            ["In the log", <code key="place">{`training-steps/${step.log_partition} @ ${step.log_offset}`}</code>],
          ]}
        />
      </Panel>
      {other && <Changes run={run} step={step} other={other} steps={steps} onBefore={onBefore} />}
      <Panel title={`Its groups, the lowest reward first`} flush>
        <Show query={groups}>
          {(rows) => (
            <DataTable label={`Groups of step ${step.step}`} rows={rows} columns={columns} rowKey={(row) => row.group_id} empty="The step consumed no group." />
          )}
        </Show>
      </Panel>
    </>
  );
}

interface ChangesProps {
  run: string;
  step: StepRow;
  other: StepRow;
  steps: readonly StepRow[];
  onBefore: (step: number) => void;
}

function Changes({ run, step, other, steps, onBefore }: ChangesProps) {
  const query = useQuery(stepChangesQuery(run, step.step, other.step));
  const columns = useMemo(() => changeColumns(run, step.step, other.step), [run, step.step, other.step]);
  const rows = useMemo(() => changesOf(step, other, query.data ?? []), [step, other, query.data]);
  return (
    <Panel
      title={`What changed since step ${other.step}`}
      flush
      note={
        <Select
          label="Compared with step"
          value={String(other.step)}
          options={steps.filter((row) => row.step !== step.step).map((row) => [String(row.step), String(row.step)])}
          onChange={(value) => onBefore(Number(value))}
        />
      }
    >
      <Show query={query}>{() => <DataTable label={`What changed since step ${other.step}`} rows={rows} columns={columns} rowKey={changeKey} />}</Show>
    </Panel>
  );
}

const KINDS: Record<StepChange["kind"] | "metric", string> = {
  rollouts: "reward",
  length: "length",
  error: "rollouts with the error",
  "tool calls": "calls of the tool",
  "tool errors": "error rate of the tool",
  task: "reward of the task",
  metric: "metric",
};

const changeColumns = (run: string, step: number, other: number): Column<Change>[] => [
  {
    id: "what",
    header: "What",
    cell: (row) => (
      <span className={styles["inText"]}>
        <span className={ui["muted"]}>{KINDS[row.kind]} </span>
        {row.kind === "metric" ? (
          <Link to="/training" search={{ run, step, metric: row.name }}>
            {row.name}
          </Link>
        ) : row.example ? (
          <Link to="/rollout" search={{ run, id: row.example }}>
            {row.kind === "task" ? taskLine(row.name) : row.name}
          </Link>
        ) : (
          row.name
        )}
      </span>
    ),
  },
  { id: "before", header: `Step ${other}`, number: true, cell: (row) => told(row, row.before) },
  { id: "now", header: `Step ${step}`, number: true, cell: (row) => told(row, row.now) },
  {
    id: "change",
    header: "Change",
    number: true,
    cell: (row) => {
      const change = difference(row);
      return (
        <span className={classes(row.better === true && styles["above"], row.better === false && styles["below"])}>
          {!change ? "–" : `${change > 0 ? "+" : ""}${row.kind === "tool errors" ? `${figure(100 * change)} %` : figure(change)}`}
        </span>
      );
    },
  },
];

function told(row: Change, value: number | null): string {
  return row.kind === "tool errors" && value !== null ? percent(value, 1) : figure(value);
}

const GROUPS = (run: string): Column<StepGroup>[] => [
  {
    id: "group",
    header: "Group",
    cell: (row) => (
      <Link to="/group" search={{ run, id: row.group_id }} className={styles["rowLink"] ?? ""}>
        {row.group_id}
      </Link>
    ),
  },
  { id: "task", header: "Task", cell: (row) => <div className={ui["clip"]}>{taskLine(row.input_json ?? "")}</div> },
  { id: "reward", header: "Mean reward", number: true, cell: (row) => figure(row.reward) },
  { id: "deviation", header: "Deviation", number: true, cell: (row) => (row.deviation === 0 ? <Status value="flat" tone="warn" /> : figure(row.deviation)) },
  { id: "range", header: "Lowest to highest", number: true, cell: (row) => `${figure(row.low)} to ${figure(row.high)}` },
  { id: "trained", header: "Trained", number: true, cell: (row) => `${count(row.trained)} of ${count(row.rollouts)}` },
];
