/** What an agent does and where it fails: its tools, its errors, a step beside another, a task wherever it was tried. */

import { queryOptions } from "@tanstack/react-query";

import { ask } from "./request";

export interface ToolRow {
  tool_name: string;
  calls: number;
  errors: number;
  error_rate: number;
  seconds_p50: number | null;
  seconds_p95: number | null;
  /** Of the time of all tools. */
  seconds_share: number | null;
  rollouts: number;
  reward_with: number | null;
  reward_without: number | null;
  reward_failed: number | null;
  last_error: string | null;
  error_rollout: string | null;
}

export const toolsQuery = (run: string) =>
  queryOptions({
    queryKey: ["tools", run],
    queryFn: ({ signal }) => ask(":tools", { run }, signal) as Promise<ToolRow[]>,
    meta: { reads: ["tools"] },
  });

export const toolNamesQuery = (run: string) =>
  queryOptions({
    queryKey: ["tool-names", run],
    queryFn: ({ signal }) => ask(":tool-names", { run }, signal) as Promise<{ tool_name: string }[]>,
    staleTime: Infinity, // a dropdown: the page asks anew when it opens
    gcTime: 0,
  });

export interface ErrorRow {
  place: string;
  name: string;
  error: string;
  count: number;
  rollouts: number;
  example: string;
  first_unix_nano: string | null;
  last_unix_nano: string | null;
  /** In twenty parts of the time of the run. */
  counts: number[];
}

export const errorsQuery = (run: string) =>
  queryOptions({
    queryKey: ["errors", run],
    queryFn: ({ signal }) => ask(":errors", { run }, signal) as Promise<ErrorRow[]>,
    meta: { reads: ["attempts", "tools", "llm_calls"] },
  });

export interface StepChange {
  kind: "rollouts" | "length" | "error" | "tool calls" | "tool errors" | "task";
  name: string;
  before: number | null;
  now: number | null;
  example: string | null;
}

export const stepChangesQuery = (run: string, step: number, before: number) =>
  queryOptions({
    queryKey: ["step-changes", run, step, before],
    queryFn: ({ signal }) => ask(":step-changes", { run, step, before }, signal) as Promise<StepChange[]>,
  });

/** A task by run and policy version. */
export interface TriedRow {
  run_id: string;
  policy_version: number | null;
  rollouts: number;
  /** Mean, lowest and highest. */
  reward: number | null;
  low: number | null;
  high: number | null;
  /** Rollouts with the highest and the lowest. */
  best: string | null;
  worst: string | null;
  /** Of the task, those of rows that are left out too. */
  of_rollouts: number;
  /** Of the first row. */
  input_json: string | null;
}

export const taskQuery = (task: string) =>
  queryOptions({
    queryKey: ["task", task],
    queryFn: ({ signal }) => ask(":task", { task }, signal) as Promise<TriedRow[]>,
    meta: { reads: ["rollouts", "trajectories"] },
  });

export interface TaskRow {
  rollout_id: string;
  run_id: string;
  mode: string;
  status: string;
  group_id: string;
  seconds: number | null;
  enqueued_unix_nano: string;
  reward: number | null;
  policy_version: number | null;
  step: number | null;
}

export const taskRolloutsQuery = (task: string) =>
  queryOptions({
    queryKey: ["task-rollouts", task],
    queryFn: ({ signal }) => ask(":task-rollouts", { task }, signal) as Promise<TaskRow[]>,
    meta: { reads: ["rollouts", "trajectories"] },
  });

export interface RewardBin {
  bin: number;
  low: number;
  high: number;
  count: number;
}

export const rewardHistogramQuery = (run: string, mode: string | undefined) =>
  queryOptions({
    queryKey: ["reward-histogram", run, mode],
    queryFn: ({ signal }) => ask(":reward-histogram", { run, mode: mode || null }, signal) as Promise<RewardBin[]>,
    meta: { reads: ["trajectories"] },
  });
