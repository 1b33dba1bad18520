/** One run at a glance: how it learns, where its work goes, and what is wrong. */

import { useMemo } from "react";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";

import {
  callsByFateQuery,
  figuresQuery,
  meaningsQuery,
  notTrainedQuery,
  type RunFigures,
  type RunState,
  runStateQuery,
  stepsQuery,
  type StepRow,
  trainedQuery,
} from "../api/runs";
import { type CostRow, costQuery } from "../api/operations";
import { count, duration, figure, percent, plural } from "../format";
import { Ago, Message, Panel, Prose, Show, Status } from "../ui/basics";
import { Chart } from "../ui/Chart";
import { type Alarm, alarmsOf } from "./alarms";
import { Funnel } from "./Funnel";
import { healthAlarms, measuresOf } from "./health";
import { HealthCard } from "./HealthCard";
import styles from "./pages.module.css";
import { Configuration, Questions, Reasons } from "./RunPanels";

export function Run() {
  const { run = "" } = useSearch({ from: "/run" });
  const figures = useQuery(figuresQuery(run));
  const state = useQuery(runStateQuery(run));
  const steps = useQuery(stepsQuery(run));
  const calls = useQuery(callsByFateQuery(run));
  const notTrained = useQuery(notTrainedQuery(run));
  const trained = useQuery(trainedQuery(run));
  const costs = useQuery(costQuery(run));
  const meanings = useQuery(meaningsQuery);
  const shown = figures.data;
  const committed = useMemo(() => (steps.data ?? []).filter((step) => step.outcome !== "measured"), [steps.data]);
  const measures = useMemo(() => measuresOf(committed), [committed]);
  const alarms = shown
    ? [
        ...healthAlarms(measures),
        ...alarmsOf({
          figures: shown,
          calls: calls.data ?? [],
          notTrained: notTrained.data ?? [],
          steps: committed,
          meanings: meanings.data,
          now: Date.now(),
        }),
      ]
    : [];
  return (
    <>
      <title>{`${run || "no run named"} · Lightstream`}</title>
      <div className={styles["head"]}>
        <h1>{run || "No run named"}</h1>
        {shown && state.data !== undefined && <RunStatus state={state.data} figures={shown} />}
        {shown && shown.rollouts > 0 && (
          <p>
            <Sentence figures={shown} steps={committed} />
          </p>
        )}
      </div>
      {state.data && <Ended state={state.data} />}
      <Alarms run={run} alarms={alarms} />
      <Show query={figures}>
        {(known) => (
          <>
            {known.rollouts === 0 && !state.data && (
              <Message title={`The view knows no rollout of the run "${run}".`}>
                <Link to="/">All runs</Link>
              </Message>
            )}
            <Stats figures={known} steps={committed} trained={trained.data?.rollouts} costs={costs.data} />
            <HealthCard run={run} measures={measures} />
            <div className={styles["columns"]}>
              <div className={styles["stack"]}>
                <RewardCurve run={run} steps={committed} />
                <Panel title="Why rollouts did not train" flush>
                  <Show query={notTrained}>{(rows) => <Reasons run={run} rows={rows} figures={known} />}</Show>
                </Panel>
              </div>
              <div className={styles["stack"]}>
                <Panel title="From tasks to training">
                  <Funnel run={run} figures={known} calls={calls.data} trained={trained.data} notTrained={notTrained.data} />
                </Panel>
                <Configuration run={run} />
                <Questions run={run} />
              </div>
            </div>
          </>
        )}
      </Show>
    </>
  );
}

/** What its trainer says; without one, what its rollouts are doing. */
function RunStatus({ state, figures }: { state: RunState | null; figures: RunFigures }) {
  if (state) return <Status value={state.state} />;
  if (figures.running > 0) return <Status value="rollouts run" tone="busy" />;
  return figures.waiting > 0 ? <Status value="rollouts wait" tone="warn" /> : figures.rollouts > 0 ? <Status value="no training" /> : null;
}

/** Why a run does not go on, and what to do about it. */
function Ended({ state }: { state: RunState }) {
  if (state.state === "failed")
    return (
      <Message bad title="The training failed">
        <pre className={styles["trace"]}>{state.error}</pre>
        <span>What is committed stays: the same command goes on from there.</span>
      </Message>
    );
  if (state.state === "lost")
    return (
      <Message bad title={`No sign of life of the trainer since ${duration(state.silent_seconds)}`}>
        <span>
          Process {state.pid} on {state.host} was killed, hangs, or cannot reach Kafka. If it is gone, the same command goes on after the last committed step.
        </span>
      </Message>
    );
  return null;
}

function Sentence({ figures, steps }: { figures: RunFigures; steps: StepRow[] }) {
  const last = steps.at(-1);
  return (
    <>
      {last
        ? `${plural(last.step, "step")}${last.steps_planned ? ` of at most ${count(last.steps_planned)}` : ""} on ${plural(figures.tasks, "task")}, ${plural(figures.rollouts, "rollout")} in ${plural(figures.groups, "group")}`
        : `${plural(figures.rollouts, "rollout")} of ${plural(figures.tasks, "task")}; no training step yet`}
      . Last change <Ago nanos={figures.last_unix_nano} />.
    </>
  );
}

function Alarms({ run, alarms }: { run: string; alarms: Alarm[] }) {
  if (alarms.length === 0) return null;
  return (
    <ul className={styles["alarms"]} aria-label="Alarms">
      {alarms.map((alarm) => (
        <li key={alarm.title} className={`${styles["alarm"]} ${alarm.bad ? styles["alarmBad"] : ""}`}>
          <strong>
            <Prose>{alarm.title}</Prose>
          </strong>
          {(alarm.reason || alarm.status) && (
            <>
              {" "}
              <Link
                to="/rollouts"
                search={{
                  run,
                  ...(alarm.reason ? { reason: alarm.reason } : {}),
                  ...(alarm.status ? { status: alarm.status } : {}),
                }}
              >
                show them
              </Link>
            </>
          )}
          {alarm.advice && (
            <p>
              <Prose>{alarm.advice}</Prose>
            </p>
          )}
        </li>
      ))}
    </ul>
  );
}

interface StatsProps {
  figures: RunFigures;
  steps: StepRow[];
  trained: number | undefined;
  costs: CostRow[] | undefined;
}

function Stats({ figures, steps, trained, costs }: StatsProps) {
  const last = steps.at(-1);
  const reward = steps.findLast((step) => step.metrics["reward/mean"] !== undefined)?.metrics["reward/mean"];
  const first = steps[0]?.metrics["reward/mean"];
  const finished = figures.succeeded + figures.failed + figures.cancelled;
  const stats = [
    ["Mean reward", figure(reward), first === undefined ? "no step yet" : `${figure(first)} in the first step`],
    ["Step", last ? count(last.step) : "–", last ? `${duration(last.seconds)} the last` : "none yet"],
    ["Rollouts", count(figures.rollouts), `${count(figures.running)} running, ${count(figures.waiting)} waiting`],
    ["Finished", percent(finished, figures.rollouts), `${count(figures.failed)} failed, ${count(figures.cancelled)} cancelled`],
    ["Trained", trained === undefined ? "…" : percent(trained, finished), trained === undefined ? "" : `${count(trained)} of ${count(finished)} finished`],
    ["Tokens", costs ? count(totalOf(costs, "prompt_tokens") + totalOf(costs, "response_tokens")) : "…", costs ? costOf(costs) : ""],
  ] as const;
  return (
    <div className={styles["stats"]}>
      {stats.map(([label, value, note]) => (
        <div key={label} className={styles["stat"]}>
          <div className={styles["statLabel"]}>{label}</div>
          <div className={styles["statValue"]}>{value}</div>
          <div className={styles["statNote"]}>{note}</div>
        </div>
      ))}
    </div>
  );
}

function totalOf(costs: CostRow[], name: "prompt_tokens" | "response_tokens"): number {
  return costs.reduce((total, row) => total + row[name], 0);
}

/** What the calls cost, as far as their models have prices. */
function costOf(costs: CostRow[]): string {
  const priced = costs.flatMap((row) => (row.cost === null ? [] : [row.cost]));
  if (priced.length === 0) return costs.length === 0 ? "no call yet" : "no price: lightstream prices sets one";
  const without = costs.reduce((total, row) => total + row.calls_without_price, 0);
  return `cost ${figure(priced.reduce((total, cost) => total + cost, 0))} $${without > 0 ? `, and ${plural(without, "call")} without a price` : ""}`;
}

function RewardCurve({ run, steps }: { run: string; steps: StepRow[] }) {
  const navigate = useNavigate();
  const rewarded = steps.filter((step) => step.metrics["reward/mean"] !== undefined);
  if (rewarded.length === 0)
    return (
      <Panel title="Mean reward by step">
        <Message title="No training step has been committed yet." />
      </Panel>
    );
  return (
    <Panel title="Mean reward by step" note="A click on a step lists its groups">
      <Chart
        label="Mean reward by step"
        x={rewarded.map((step) => step.step)}
        lines={[{ label: "mean reward", values: rewarded.map((step) => step.metrics["reward/mean"] ?? null), colour: 1 }]}
        onPick={(step) => void navigate({ to: "/training", search: { run, step } })}
      />
    </Panel>
  );
}
