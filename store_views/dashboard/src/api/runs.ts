/** What the view knows of runs: their list, one run's figures, its steps. */

import { keepPreviousData, queryOptions } from "@tanstack/react-query";

import { duration } from "../format";
import { ask, getJson } from "./request";

/** How often an open page asks for what no table tells, in milliseconds, while it is looked at. */
export const LIVE_MS = 4_000;

/** What a run is doing, as its trainer says; null where nobody trains it. */
export type State = "running" | "lost" | "finished" | "failed" | "stopped";

export interface RunRow {
  run_id: string;
  state: State | null;
  error: string | null;
  rollouts: number;
  finished: number;
  running: number;
  waiting: number;
  failed: number;
  first_unix_nano: string;
  last_unix_nano: string;
  step: number | null;
  steps_planned: number | null;
  reward: number | null;
  rewards: (number | null)[] | null;
}

export const runsQuery = queryOptions({
  queryKey: ["runs"],
  queryFn: ({ signal }) => ask(":runs", {}, signal) as Promise<RunRow[]>,
  meta: { reads: ["rollouts", "training_steps_raw"] },
  refetchInterval: LIVE_MS, // that a run is lost is in no table: time alone tells it
});

export interface RunState {
  state: State;
  error: string;
  trainer_id: string | null;
  host: string | null;
  pid: number | null;
  said_unix_nano: string | null;
  silent_seconds: number | null;
}

export const runStateQuery = (run: string) =>
  queryOptions({
    queryKey: ["run-state", run],
    queryFn: async ({ signal }) => (await (ask(":run-state", { run }, signal) as Promise<RunState[]>))[0] ?? null,
    refetchInterval: LIVE_MS,
  });

export interface SettingRow {
  name: string;
  value: string | null;
  other_value: string | null;
  differs: boolean;
}

export const configurationQuery = (run: string, other?: string) =>
  queryOptions({
    queryKey: ["configuration", run, other],
    queryFn: ({ signal }) => ask(":configuration", { run, other: other ?? null }, signal) as Promise<SettingRow[]>,
    meta: { reads: ["resources"] },
  });

export interface RunFigures {
  /** Distinct inputs. */
  tasks: number;
  groups: number;
  rollouts: number;
  train_rollouts: number;
  waiting: number;
  running: number;
  succeeded: number;
  failed: number;
  cancelled: number;
  attempts: number;
  retried: number;
  rewarded: number;
  first_unix_nano: string | null;
  last_unix_nano: string | null;
}

export const figuresQuery = (run: string) =>
  queryOptions({
    queryKey: ["figures", run],
    queryFn: async ({ signal }) => (await (ask(":run", { run }, signal) as Promise<RunFigures[]>))[0],
    meta: { reads: ["rollouts"] },
  });

export interface CountByReason {
  fate: string;
  reason: string | null;
  count: number;
}

export const callsByFateQuery = (run: string) =>
  queryOptions({
    queryKey: ["calls", run],
    queryFn: ({ signal }) => ask(":calls-by-fate", { run }, signal) as Promise<CountByReason[]>,
    meta: { reads: ["calls_by_reason"] },
  });

export interface NotTrainedReason {
  reason_code: string;
  count: number;
  meaning: string;
  next_step: string;
  example: string;
}

export const notTrainedQuery = (run: string) =>
  queryOptions({
    queryKey: ["not-trained", run],
    queryFn: ({ signal }) => ask(":not-trained", { run }, signal) as Promise<NotTrainedReason[]>,
    meta: { reads: ["reason_codes"] },
  });

export interface TrainedCount {
  rollouts: number;
  calls: number;
}

export const trainedQuery = (run: string) =>
  queryOptions({
    queryKey: ["trained", run],
    queryFn: async ({ signal }) => (await (ask(":trained", { run }, signal) as Promise<TrainedCount[]>))[0],
    meta: { reads: ["run_trained"] },
  });

export interface StepRow {
  step: number;
  outcome: string;
  cause: string;
  trainer_id: string;
  steps_planned: number | null;
  resources_id: string | null;
  policy_version: number | null;
  trajectory_count: number;
  group_count: number;
  triplet_count: number;
  seconds: number | null;
  ended_unix_nano: string;
  metrics: Record<string, number>;
  log_partition: number;
  log_offset: number;
}

export const stepsQuery = (run: string) =>
  queryOptions({
    queryKey: ["steps", run],
    queryFn: ({ signal }) => ask(":steps", { run }, signal) as Promise<StepRow[]>,
    meta: { reads: ["training_steps"] },
    placeholderData: keepPreviousData,
  });

export interface Positions {
  lag: Record<string, Record<string, number>>;
  positions: Record<string, Record<string, number>>;
  end: Record<string, Record<string, number>>;
  /** By what was last heard of the log. */
  lag_records: number;
  /** Seconds since Kafka was last heard of; 0 while it answers. */
  kafka_silent_s: number | null;
  /** While the view reads the log from its beginning; answers lack rows until then. */
  rebuilding: { records_done: number; records_total: number; seconds_left: number | null } | null;
}

export const positionsQuery = queryOptions({
  queryKey: ["positions"],
  queryFn: ({ signal }) => getJson<Positions>("/v1/positions", signal),
  refetchInterval: LIVE_MS,
});

/** A broker that restarts is away for less, in seconds; as for the view's `/readyz`. */
const SILENCE_MAX = 10;

/** Since when nothing is known of the log, in words; nothing while Kafka answers. */
export function silence({ kafka_silent_s: seconds }: Positions): string | undefined {
  if (seconds === null || seconds <= SILENCE_MAX) return undefined;
  const since = new Date(Date.now() - 1000 * seconds).toLocaleTimeString("en-GB");
  return `Kafka does not answer: last heard of at ${since}, ${duration(Math.round(seconds))} ago`;
}

export interface Meanings {
  drops: Record<string, string>;
  notes: Record<string, string>;
}

export const meaningsQuery = queryOptions({
  queryKey: ["meanings"],
  queryFn: ({ signal }) => getJson<Meanings>("/v1/reasons", signal),
  staleTime: Infinity,
});
