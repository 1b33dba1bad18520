/** A group's rollouts beside each other, and the groups of a step. */

import { queryOptions } from "@tanstack/react-query";

import { ask } from "./request";
import { LEARNED, LIVE_MS } from "./runs";

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

const MEMBERS = `
WITH member AS (
  SELECT rollout_id, run_id, status, mode, group_size, input_json, seconds
  FROM rollouts WHERE coalesce(group_id, rollout_id) = $group AND ($run IS NULL OR run_id = $run)
  ORDER BY enqueued_unix_nano, rollout_id LIMIT 256
), made AS (
  SELECT rollout_id, any_value(reward) AS reward, any_value(call_count) AS call_count,
    any_value(error_type) AS error_type, any_value(error_message) AS error_message
  FROM trajectories_latest WHERE final AND rollout_id IN (SELECT rollout_id FROM member) GROUP BY rollout_id
), used AS (
  SELECT rollout_id, max(step) AS step FROM consumed_raw
  WHERE ${LEARNED} AND rollout_id IN (SELECT rollout_id FROM member) GROUP BY rollout_id
), why AS (
  SELECT rollout_id, reason_code, reason FROM why_not_trained WHERE group_key = $group
), last_call AS (
  SELECT rollout_id, llm_response_json AS response_json, len(llm_response_token_ids) AS response_tokens,
    llm_policy_version AS policy_version
  FROM spans_raw
  WHERE llm_choice_index IS NOT NULL AND rollout_id IN (SELECT rollout_id FROM member)
  QUALIFY row_number() OVER (PARTITION BY rollout_id ORDER BY start_unix_nano DESC, log_offset DESC) = 1
)
FROM member LEFT JOIN made USING (rollout_id) LEFT JOIN used USING (rollout_id) LEFT JOIN why USING (rollout_id)
LEFT JOIN last_call USING (rollout_id)
ORDER BY rollout_id`;

export const groupQuery = (group: string, run: string | undefined) =>
  queryOptions({
    queryKey: ["group", group, run],
    queryFn: ({ signal }) => ask<Member>(MEMBERS, { group, run: run ?? null }, signal),
    refetchInterval: 3 * LIVE_MS,
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

const STEP_GROUPS = `
SELECT used.group_id, count(*) AS rollouts, count(*) FILTER (used.triplet_count > 0) AS trained, avg(used.reward) AS reward,
  stddev_pop(used.reward) AS deviation, min(used.reward) AS low, max(used.reward) AS high,
  any_value(left(input_json, 300)) AS input_json
FROM consumed AS used LEFT JOIN (
  SELECT rollout_id, input_json FROM rollouts
  WHERE rollout_id IN (SELECT rollout_id FROM consumed_raw WHERE run_id = $run AND step = $step)
) USING (rollout_id)
WHERE used.run_id = $run AND used.step = $step
GROUP BY used.group_id ORDER BY reward NULLS FIRST, used.group_id`;

export const stepGroupsQuery = (run: string, step: number) =>
  queryOptions({
    queryKey: ["step-groups", run, step],
    queryFn: ({ signal }) => ask<StepGroup>(STEP_GROUPS, { run, step }, signal),
  });
