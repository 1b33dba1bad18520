/** Curves of the training: any metric of the steps, smoothed, beside other runs; a step opens its groups. */

import { useMemo } from "react";
import { useQueries, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";

import { configurationQuery, runsQuery, type StepRow, stepsQuery } from "../api/runs";
import { figure } from "../format";
import type { TrainingSearch } from "../router";
import { Button, Message, Panel, Show } from "../ui/basics";
import { Chart, type Line } from "../ui/Chart";
import { DataTable } from "../ui/DataTable";
import { Select } from "../ui/Select";
import { comparedAs, runsOf } from "./compared";
import styles from "./pages.module.css";
import { Step } from "./Step";

const SMOOTHINGS = [
  ["0", "none"],
  ["0.6", "0.6"],
  ["0.9", "0.9"],
  ["0.97", "0.97"],
] as const;

const SHOWN_BELOW = [
  "loss",
  "grad_norm",
  "actor/entropy",
  "actor/ppo_kl",
  "logprob_diff_max",
  "response_tokens/mean",
  "groups/without_signal",
  "seconds/update",
];

/** Exponential moving average without the bias of its start: each point weighs what came before by `weight`. */
function smooth(values: readonly (number | null)[], weight: number): (number | null)[] {
  let sum = 0;
  let weights = 0;
  return values.map((value) => {
    if (value === null || !Number.isFinite(value)) return null;
    sum = weight * sum + (1 - weight) * value;
    weights = weight * weights + (1 - weight);
    return sum / weights;
  });
}

/** As many as there are colours. */
const BESIDE_MAX = 5;

export function Training() {
  const search = useSearch({ from: "/training" });
  const { run = "", metric = "reward/mean", ema = "0", compare, step } = search;
  const navigate = useNavigate();
  const change = (changed: TrainingSearch) => void navigate({ to: "/training", search: { ...search, ...changed }, replace: true, resetScroll: false });
  const beside = runsOf(compare)
    .filter((id) => id !== run)
    .slice(0, BESIDE_MAX);
  const compareWith = (ids: string[]) => change({ compare: comparedAs(ids) });
  const runs = [run, ...beside];
  const queries = useQueries({ queries: runs.map((id) => stepsQuery(id)) });
  const others = useQuery(runsQuery);
  const steps = queries.map((query) => (query.data ?? []).filter((row) => row.outcome !== "measured"));
  const own = steps[0] ?? [];
  const metrics = [...new Set(own.flatMap((row) => Object.keys(row.metrics)))].sort();
  const shown = own.find((row) => row.step === step);
  return (
    <>
      <title>{`Training of ${run || "no run named"} · Lightstream`}</title>
      <div className={styles["head"]}>
        <h1>Training</h1>
        <p>What each committed step reported. A click on a step lists its groups.</p>
      </div>
      <div className={styles["filters"]}>
        <Select
          label="Curve"
          value={metric}
          options={(metrics.length > 0 ? metrics : [metric]).map((name) => [name, name])}
          onChange={(value) => change({ metric: value })}
        />
        <Select label="Smoothing (EMA)" value={ema} options={SMOOTHINGS} onChange={(value) => change({ ema: value === "0" ? undefined : value })} />
        <Select
          label="Beside"
          value=""
          options={[
            ["", beside.length === 0 ? "no other run" : "another run"],
            ...(others.data ?? []).filter((row) => row.run_id && !runs.includes(row.run_id)).map((row) => [row.run_id, row.run_id] as const),
          ]}
          onChange={(value) => value && compareWith([...beside, value].slice(-BESIDE_MAX))}
        />
        {beside.map((id) => (
          <Button key={id} onPress={() => compareWith(beside.filter((one) => one !== id))}>
            Without {id} ✕
          </Button>
        ))}
      </div>
      {beside.map((id) => (
        <Differences key={id} run={run} other={id} />
      ))}
      {queries.map((query, index) =>
        query.error ? (
          <Show key={index} query={query}>
            {() => null}
          </Show>
        ) : null,
      )}
      {own.length === 0 && queries[0]?.isSuccess ? (
        <Message title="No training step of this run has been committed yet." />
      ) : (
        <Panel title={metric}>
          <Curves runs={runs} steps={steps} metric={metric} ema={Number(ema)} height={300} marked={step} onPick={(value) => change({ step: value })} />
        </Panel>
      )}
      {shown && (
        <Step
          run={run}
          step={shown}
          steps={own}
          before={search.before}
          onBefore={(before) => change({ before })}
          close={() => change({ step: undefined, before: undefined })}
        />
      )}
      <div className={styles["charts"]}>
        {SHOWN_BELOW.filter((name) => name !== metric && metrics.includes(name)).map((name) => (
          <Panel key={name} title={name} note={figure(own.at(-1)?.metrics[name])}>
            <Curves runs={runs} steps={steps} metric={name} ema={Number(ema)} height={130} marked={step} onPick={(value) => change({ step: value })} />
          </Panel>
        ))}
      </div>
    </>
  );
}

/** What two runs were made with that is not the same. */
function Differences({ run, other }: { run: string; other: string }) {
  const { data } = useQuery(configurationQuery(run, other));
  if (!data || data.length === 0) return null;
  return (
    <Panel title={`What ${other} is made with otherwise`} flush>
      <DataTable
        label={`Settings that differ between ${run} and ${other}`}
        rows={data.filter((row) => row.differs)}
        columns={[
          { id: "name", header: "Setting", cell: (row) => <code>{row.name}</code> },
          { id: "own", header: run, cell: (row) => <code>{row.value ?? "–"}</code> },
          { id: "other", header: other, cell: (row) => <code>{row.other_value ?? "–"}</code> },
        ]}
        rowKey={(row) => row.name}
        empty="Both are made with the same settings."
      />
    </Panel>
  );
}

interface CurvesProps {
  runs: string[];
  steps: StepRow[][];
  metric: string;
  ema: number;
  height: number;
  marked: number | undefined;
  onPick: (step: number) => void;
}

function Curves({ runs, steps, metric, ema, height, marked, onPick }: CurvesProps) {
  const { x, lines } = useMemo(() => {
    const numbers = [...new Set(steps.flat().map((row) => row.step))].sort((one, other) => one - other);
    const drawn = runs.flatMap((run, index): Line[] => {
      const found = new Map((steps[index] ?? []).map((row) => [row.step, row.metrics[metric] ?? null]));
      const values = numbers.map((number) => found.get(number) ?? null);
      const label = runs.length > 1 ? run || "no run named" : metric;
      if (ema === 0) return [{ label, values, colour: index + 1 }];
      return [
        { label: `${label} as it was`, values, colour: index + 1, faint: true },
        { label, values: smooth(values, ema), colour: index + 1 },
      ];
    });
    return { x: numbers, lines: drawn };
  }, [runs, steps, metric, ema]);
  return <Chart label={metric} x={x} lines={lines} height={height} marked={marked} onPick={onPick} />;
}
