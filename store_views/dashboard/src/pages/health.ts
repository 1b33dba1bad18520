/** Whether a training is well: its measures beside their normal ranges. */

import type { StepRow } from "../api/runs";
import { duration, figure, percent, plural } from "../format.ts";
import type { Alarm } from "./alarms";

export interface Measure {
  name: string;
  /** The metric that its curve shows; none where it is made of others. */
  metric: string | null;
  value: string;
  normal: string;
  state: "normal" | "watch" | "alarm";
  curve: (number | null)[];
  alarm?: Omit<Alarm, "bad"> | undefined;
}

/** Entropy below these shares of its first steps'. */
const ENTROPY_WATCH = 0.2;
const ENTROPY_ALARM = 0.05;
const KL_WATCH = 0.05;
const KL_ALARM = 0.5;
/** Times the median of the run. */
const GRADIENT_TIMES = 5;
/** Mean gap of log-probabilities between actor and model server: weights of another run are farther apart than rounding. */
const GAP_WATCH = 0.05;
const GAP_ALARM = 0.1;
const STALE_WATCH = 4;
const FLAT_WATCH = 0.7;
/** Of the median. */
const THROUGHPUT_WATCH = 0.5;
/** Shares and times are of so many last steps. */
const LATELY = 5;
/** Trainers write NaN for these where the model server gave no log-probabilities. */
/** Of metrics that are no numbers so many are named. */

/** Of the committed steps of a run; a measure that no step has is left out. */
export function measuresOf(steps: readonly StepRow[]): Measure[] {
  const curveOf = (name: string) => steps.map((step) => finite(step.metrics[name]));
  const found: (Measure | null)[] = [
    measured("Entropy", "actor/entropy", curveOf("actor/entropy"), (last, known) => {
      const share = last / Math.max(1e-12, median(known.slice(0, 3)));
      return {
        normal: `above ${figure(ENTROPY_WATCH * median(known.slice(0, 3)))}, a fifth of its begin`,
        state: share < ENTROPY_ALARM ? "alarm" : share < ENTROPY_WATCH ? "watch" : "normal",
        alarm: {
          title: `The entropy collapsed: ${figure(last)}, ${percent(last, median(known.slice(0, 3)))} of its begin`,
          advice:
            "Answers no longer differ, so nothing more is learned. Go on from an earlier step with a lower learning rate, or with more KL or entropy in the loss.",
        },
      };
    }),
    measured("KL", "actor/ppo_kl", curveOf("actor/ppo_kl"), (last) => ({
      normal: `within ±${KL_WATCH}`,
      state: Math.abs(last) > KL_ALARM ? "alarm" : Math.abs(last) > KL_WATCH ? "watch" : "normal",
      alarm: { title: `The policy moved far in one step: KL ${figure(last)}`, advice: "Lower the learning rate, or the number of updates of a step." },
    })),
    measured("Gradient norm", "grad_norm", curveOf("grad_norm"), (last, known) => ({
      normal: `below ${figure(GRADIENT_TIMES * median(known))}, ${GRADIENT_TIMES} times its median`,
      state: last > GRADIENT_TIMES * median(known) ? "watch" : "normal",
    })),
    measured("Gap of log-probabilities", "logprob_diff_mean", curveOf("logprob_diff_mean"), (last) => ({
      normal: `below ${GAP_WATCH}`,
      state: last > GAP_ALARM ? "alarm" : last > GAP_WATCH ? "watch" : "normal",
      alarm: {
        title: `Other weights answered than were trained: log-probabilities of actor and model server differ by ${figure(last)} on average`,
        advice: "Another training may publish to the same model server, or it serves an older version. Give each training a model server or a name of its own.",
      },
    })),
    measured("Staleness", "batch/staleness_max", curveOf("batch/staleness_max"), (last) => ({
      normal: `at most ${STALE_WATCH} versions`,
      state: last > STALE_WATCH ? "watch" : "normal",
    })),
    measured("Tokens per second, update", "tokens_per_second/update", curveOf("tokens_per_second/update"), (last, known) => ({
      normal: `above ${figure(THROUGHPUT_WATCH * median(known))}, half its median`,
      state: last < THROUGHPUT_WATCH * median(known) ? "watch" : "normal",
    })),
    flatGroups(steps),
    noNumbers(steps),
    timeLeft(steps),
  ];
  return found.filter((one) => one !== null);
}

/** What should be known before anything else. */
export function healthAlarms(measures: readonly Measure[]): Alarm[] {
  return measures.flatMap(({ state, alarm }) => (state === "alarm" && alarm ? [{ bad: true, ...alarm }] : []));
}

type Judgement = Pick<Measure, "normal" | "state" | "alarm">;

function measured(name: string, metric: string, curve: (number | null)[], judge: (last: number, known: number[]) => Judgement): Measure | null {
  const known = curve.filter((value) => value !== null);
  const last = known.at(-1);
  return last === undefined ? null : { name, metric, value: figure(last), curve, ...judge(last, known) };
}

/** Steps whose metrics were NaN or infinite. The log has finite ones alone, and how many were not. */
function noNumbers(steps: readonly StepRow[]): Measure | null {
  const metric = "metrics/not_finite";
  const found = steps.slice(-LATELY).findLast((step) => (step.metrics[metric] ?? 0) > 0);
  if (!found) return null;
  const none = found.metrics[metric] ?? 0;
  return {
    name: "No numbers, lately",
    metric,
    value: figure(none),
    normal: "a number for each metric",
    state: "alarm",
    curve: steps.map((step) => step.metrics[metric] ?? 0),
    alarm: {
      title: `Step ${found.step} measured what is no number: ${plural(none, "metric")}`,
      advice:
        "The weights may hold it, too, and nothing more is learned then. Go on from a step before it with a lower learning rate, or with clipped gradients.",
    },
  };
}

function flatGroups(steps: readonly StepRow[]): Measure | null {
  const known = steps.filter((step) => step.metrics["groups/without_signal"] !== undefined && step.group_count > 0);
  if (known.length === 0) return null;
  const lately = known.slice(-LATELY);
  const flat = sum(lately.map((step) => step.metrics["groups/without_signal"] ?? 0));
  const groups = sum(lately.map((step) => step.group_count));
  return {
    name: "Flat groups, lately",
    metric: "groups/without_signal",
    value: percent(flat, groups),
    normal: `below ${percent(FLAT_WATCH, 1)}`,
    state: flat > FLAT_WATCH * groups ? "watch" : "normal",
    curve: known.map((step) => (step.metrics["groups/without_signal"] ?? 0) / step.group_count),
  };
}

function timeLeft(steps: readonly StepRow[]): Measure | null {
  const last = steps.at(-1);
  const planned = last?.steps_planned;
  if (!last || !planned || steps.length < 2) return null;
  const ended = steps.map((step) => Number(BigInt(step.ended_unix_nano) / 1_000_000n) / 1000);
  const took = ended.slice(1).map((end, index) => end - (ended[index] ?? end));
  const left = Math.max(0, planned - last.step) * median(took.slice(-10));
  return {
    name: "Time left",
    metric: null,
    value: planned <= last.step ? "none" : `about ${duration(Math.round(left))}`,
    normal: `${Math.max(0, planned - last.step)} of ${planned} steps to go, if none stops it earlier`,
    state: "normal",
    curve: took,
  };
}

function finite(value: number | undefined): number | null {
  return value !== undefined && Number.isFinite(value) ? value : null;
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((one, other) => one - other);
  const middle = Math.floor(sorted.length / 2);
  const high = sorted[middle] ?? 0;
  return sorted.length % 2 === 1 ? high : ((sorted[middle - 1] ?? high) + high) / 2;
}
