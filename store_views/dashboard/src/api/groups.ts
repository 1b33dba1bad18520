/** A group's rollouts beside each other, and the groups of a step. */

import { queryOptions } from "@tanstack/react-query";

import { ask } from "./request";
import { LIVE_MS } from "./runs";
import { isGroupSettled } from "./settled";

export interface Member {
  rollout_id: string;
  run_id: string;
  status: string;
  mode: string;
  group_size: number | null;
  input_json: string;
  seconds: number | null;
  reward: number | null;
  call_count: number | null;
  error_type: string | null;
  error_message: string | null;
  step: number | null;
  reason_code: string | null;
  reason: string | null;
  response_json: string | null;
  response_tokens: number | null;
  policy_version: number | null;
}

export const groupQuery = (group: string, run: string | undefined) =>
  queryOptions({
    queryKey: ["group", group, run],
    queryFn: ({ signal }) => ask(":group", { group, run: run ?? null }, signal) as Promise<Member[]>,
    refetchInterval: ({ state: { data } }) => (data && isGroupSettled(data) ? false : 3 * LIVE_MS),
  });

export interface StepGroup {
  group_id: string;
  rollouts: number;
  trained: number;
  reward: number | null;
  deviation: number | null;
  low: number | null;
  high: number | null;
  input_json: string | null;
}

export const stepGroupsQuery = (run: string, step: number) =>
  queryOptions({
    queryKey: ["step-groups", run, step],
    queryFn: ({ signal }) => ask(":step-groups", { run, step }, signal) as Promise<StepGroup[]>,
  });
