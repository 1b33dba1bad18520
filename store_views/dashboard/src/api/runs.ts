/** What the view knows of runs: their list, one run's figures, its steps. */

import { keepPreviousData, queryOptions } from "@tanstack/react-query";

import { duration } from "../format";
import { ask, getJson } from "./request";

/** How often an open page asks for what no table tells, in milliseconds, while it is looked at. */
export const LIVE_MS = 4_000;

/** Rows of `consumed_raw` that the view `trained` has too, without what it joins to them. */
export const LEARNED = "triplet_count > 0 AND outcome = 'updated'";

export interface RunRow {
  run_id: string;
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

const RUNS = `
WITH of_run AS (
  SELECT run_id, count(*) AS rollouts,
    count(*) FILTER (status IN ('succeeded', 'failed', 'cancelled')) AS finished,
    count(*) FILTER (status IN ('preparing', 'running')) AS running,
    count(*) FILTER (status IN ('queuing', 'requeuing')) AS waiting,
    count(*) FILTER (status = 'failed') AS failed,
    min(enqueued_unix_nano)::VARCHAR AS first_unix_nano, max(updated_unix_nano)::VARCHAR AS last_unix_nano
  FROM rollouts GROUP BY run_id
), trained AS (
  SELECT run_id, max(step) AS step, arg_max(steps_planned, log_offset) AS steps_planned,
    arg_max(metrics['reward/mean'], step) AS reward, list(metrics['reward/mean'] ORDER BY step) AS rewards
  FROM training_steps_raw WHERE outcome <> 'measured' GROUP BY run_id
)
SELECT * FROM of_run FULL JOIN trained USING (run_id) ORDER BY last_unix_nano DESC NULLS LAST LIMIT 200`;

export const runsQuery = queryOptions({
  queryKey: ["runs"],
  queryFn: ({ signal }) => ask<RunRow>(RUNS, {}, signal),
  meta: { reads: ["rollouts", "training_steps_raw"] },
});

export interface RunFigures {
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

const FIGURES = `
SELECT count(DISTINCT coalesce(group_id, rollout_id)) AS groups, count(*) AS rollouts,
  count(*) FILTER (mode = 'train') AS train_rollouts,
  count(*) FILTER (status IN ('queuing', 'requeuing')) AS waiting,
  count(*) FILTER (status IN ('preparing', 'running')) AS running,
  count(*) FILTER (status = 'succeeded') AS succeeded, count(*) FILTER (status = 'failed') AS failed,
  count(*) FILTER (status = 'cancelled') AS cancelled,
  coalesce(sum(attempt_count), 0)::BIGINT AS attempts, count(*) FILTER (attempt_count > 1) AS retried,
  (SELECT coalesce(sum(rewarded), 0)::BIGINT FROM runs WHERE run_id = $run) AS rewarded,
  min(enqueued_unix_nano)::VARCHAR AS first_unix_nano, max(updated_unix_nano)::VARCHAR AS last_unix_nano
FROM rollouts WHERE run_id = $run`;

export const figuresQuery = (run: string) =>
  queryOptions({
    queryKey: ["figures", run],
    queryFn: async ({ signal }) => (await ask<RunFigures>(FIGURES, { run }, signal))[0],
    meta: { reads: ["rollouts"] },
  });

export interface CountByReason {
  fate: string;
  reason: string | null;
  count: number;
}

/** Of assembled attempts, from sums that the view keeps. */
const CALLS = `
SELECT fate, reason, sum(calls)::BIGINT AS count FROM calls_by_reason WHERE run_id = $run GROUP BY ALL ORDER BY count DESC`;

export const callsByFateQuery = (run: string) =>
  queryOptions({
    queryKey: ["calls", run],
    queryFn: ({ signal }) => ask<CountByReason>(CALLS, { run }, signal),
    meta: { reads: ["calls_by_reason"] },
  });

export interface NotTrainedReason {
  reason_code: string;
  count: number;
  meaning: string;
  next_step: string;
  example: string;
}

const NOT_TRAINED = `
SELECT reason_code, count, coalesce(meaning, 'its algorithm calls it ' || reason_code) AS meaning,
  coalesce(next_step, 'See what its algorithm means by that.') AS next_step, example
FROM (SELECT reason_code, count(*) AS count, max(rollout_id) AS example FROM reason_codes
  WHERE run_id = $run AND mode = 'train' GROUP BY reason_code)
LEFT JOIN not_trained_reasons USING (reason_code) ORDER BY count DESC`;

export const notTrainedQuery = (run: string) =>
  queryOptions({
    queryKey: ["not-trained", run],
    queryFn: ({ signal }) => ask<NotTrainedReason>(NOT_TRAINED, { run }, signal),
    meta: { reads: ["reason_codes"] },
  });

export interface TrainedCount {
  rollouts: number;
  calls: number;
}

const TRAINED = `
SELECT coalesce(sum(rollouts), 0)::BIGINT AS rollouts, coalesce(sum(calls), 0)::BIGINT AS calls
FROM run_trained WHERE run_id = $run`;

export const trainedQuery = (run: string) =>
  queryOptions({
    queryKey: ["trained", run],
    queryFn: async ({ signal }) => (await ask<TrainedCount>(TRAINED, { run }, signal))[0],
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

const STEPS = `
SELECT step, outcome, coalesce(cause, '') AS cause, trainer_id, steps_planned, resources_id, policy_version, trajectory_count, group_count,
  triplet_count, seconds, ended_unix_nano::VARCHAR AS ended_unix_nano, metrics, log_partition, log_offset
FROM training_steps WHERE run_id = $run ORDER BY log_offset`;

export const stepsQuery = (run: string) =>
  queryOptions({
    queryKey: ["steps", run],
    queryFn: ({ signal }) => ask<StepRow>(STEPS, { run }, signal),
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
