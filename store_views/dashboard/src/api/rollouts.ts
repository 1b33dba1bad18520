/** What the view knows of rollouts: pages of their list, and all of one. */

import { infiniteQueryOptions, keepPreviousData, queryOptions } from "@tanstack/react-query";

import { ask, getJson, type Parameters } from "./request";
import { LEARNED, LIVE_MS } from "./runs";

export const PAGE_ROWS = 100;

export interface RolloutFilters {
  run?: string | undefined;
  status?: string | undefined;
  mode?: string | undefined;
  group?: string | undefined;
  reason?: string | undefined;
  step?: number | undefined;
  text?: string | undefined;
}

export interface RolloutRow {
  rollout_id: string;
  run_id: string;
  mode: string;
  status: string;
  group_id: string | null;
  attempt_count: number;
  input_json: string;
  enqueued_unix_nano: string;
  seconds: number | null;
  reward: number | null;
  call_count: number | null;
  step: number | null;
  reason_code: string | null;
}

interface Cursor {
  nanos: string;
  id: string;
}

function rolloutsSql(filters: RolloutFilters, after: Cursor | null): { sql: string; params: Parameters } {
  const conditions: string[] = [];
  const params: Parameters = {};
  const add = (condition: string, name: string, value: string | number) => {
    conditions.push(condition);
    params[name] = value;
  };
  if (filters.run !== undefined) add("run_id = $run", "run", filters.run);
  if (filters.status) add("status = $status", "status", filters.status);
  if (filters.mode) add("mode = $mode", "mode", filters.mode);
  if (filters.group) add("coalesce(group_id, rollout_id) = $group", "group", filters.group);
  if (filters.text)
    add("(contains(rollout_id, $text) OR contains(lower(input_json), lower($text)))", "text", filters.text);
  if (filters.reason === "trained")
    conditions.push(`rollout_id IN (SELECT rollout_id FROM consumed_raw WHERE ${LEARNED})`);
  else if (filters.reason)
    add("rollout_id IN (SELECT rollout_id FROM reason_codes WHERE reason_code = $reason)", "reason", filters.reason);
  if (filters.step !== undefined)
    add("rollout_id IN (SELECT rollout_id FROM consumed_raw WHERE step = $step AND ($run IS NULL OR run_id = $run))", "step", filters.step);
  if (filters.step !== undefined && filters.run === undefined) params["run"] = null;
  if (after) {
    conditions.push("(enqueued_unix_nano, rollout_id) < ($nanos::BIGINT, $id)");
    params["nanos"] = after.nanos;
    params["id"] = after.id;
  }
  const where = conditions.length > 0 ? `WHERE ${conditions.join(" AND ")}` : "";
  const sql = `
WITH page AS (
  SELECT rollout_id, run_id, mode, status, group_id, attempt_count, left(input_json, 400) AS input_json,
    enqueued_unix_nano, seconds
  FROM rollouts ${where} ORDER BY enqueued_unix_nano DESC, rollout_id DESC LIMIT ${PAGE_ROWS}
)
SELECT page.* REPLACE (page.enqueued_unix_nano::VARCHAR AS enqueued_unix_nano), made.reward, made.call_count,
  used.step, why.reason_code
FROM page
LEFT JOIN (SELECT rollout_id, any_value(reward) AS reward, any_value(call_count) AS call_count FROM trajectories_latest
  WHERE final AND rollout_id IN (SELECT rollout_id FROM page) GROUP BY rollout_id) AS made USING (rollout_id)
LEFT JOIN (SELECT rollout_id, max(step) AS step FROM consumed_raw
  WHERE ${LEARNED} AND rollout_id IN (SELECT rollout_id FROM page) GROUP BY rollout_id) AS used USING (rollout_id)
LEFT JOIN (SELECT rollout_id, reason_code FROM reason_codes
  WHERE rollout_id IN (SELECT rollout_id FROM page)) AS why USING (rollout_id)
ORDER BY page.enqueued_unix_nano DESC, page.rollout_id DESC`;
  return { sql, params };
}

export const rolloutsQuery = (filters: RolloutFilters) =>
  infiniteQueryOptions({
    queryKey: ["rollouts", filters],
    queryFn: ({ pageParam, signal }) => {
      const { sql, params } = rolloutsSql(filters, pageParam);
      return ask<RolloutRow>(sql, params, signal);
    },
    initialPageParam: null as Cursor | null,
    getNextPageParam: (page): Cursor | null => {
      const last = page.at(-1);
      return page.length === PAGE_ROWS && last ? { nanos: last.enqueued_unix_nano, id: last.rollout_id } : null;
    },
    placeholderData: keepPreviousData,
    meta: { reads: ["rollouts", "trajectories", "trained"] },
  });

export interface Explained {
  rollout: {
    rollout_id: string;
    run_id: string;
    mode: string;
    status: string;
    group_id: string | null;
    group_size: number | null;
    resources_id: string | null;
    input_json: string;
    metadata_json: string;
    attempt_count: number;
    max_attempts: number;
    enqueued_unix_nano: string;
    ended_unix_nano: string | null;
    seconds: number | null;
    log_partition: number;
    log_offset: number;
    source_offset: number;
    attempts: { attempt_id: string; started_unix_nano: string; ended_unix_nano: string | null }[];
  };
  conclusion: string;
  reason_code: string;
  next_step: string;
  attempts: {
    attempt_id: string;
    attempt_sequence: number;
    status: string;
    final: boolean | null;
    worker_id: string | null;
    seconds: number | null;
    error_type: string | null;
    error_message: string | null;
  }[];
  calls: Call[];
  rewards: {
    attempt_id: string;
    name: string;
    dimension: number;
    value: number | null;
    match: string;
    call_index: number | null;
    span_id: string;
    source_partition: number;
    source_offset: number;
  }[];
  dropped: Lost[];
  shared: Lost[];
  notes: { attempt_id: string; reason: string; span_id: string; count: number; detail: string }[];
  segments: {
    index: number;
    agent_name: string | null;
    start_reason: string;
    diverged_at: number;
    call_indexes: number[];
    tokens: number;
    sampled: number;
  }[];
}

export interface Call {
  attempt_id: string;
  span_id: string;
  response_id: string | null;
  choice: number | null;
  fate: string;
  reason: string | null;
  detail: string | null;
  model: string | null;
  policy: number | null;
  prompt_tokens: number | null;
  response_tokens: number | null;
  finish_reason: string | null;
  seconds: number | null;
  start_unix_nano: string | null;
  log_partition: number | null;
  log_offset: number | null;
}

export interface Lost {
  attempt_id: string | null;
  span_id: string;
  is_llm_call: boolean;
  reason: string;
  detail: string;
  log_partition: number;
  log_offset: number;
}

const MAY_STILL_TRAIN = new Set(["not_assembled", "group_incomplete", "not_consumed"]);

function isSettled(found: Explained | undefined): boolean {
  const isFinished = ["succeeded", "failed", "cancelled"].includes(found?.rollout.status ?? "");
  return isFinished && !MAY_STILL_TRAIN.has(found?.reason_code ?? "");
}

export const explainQuery = (rollout: string) =>
  queryOptions({
    queryKey: ["explain", rollout],
    queryFn: ({ signal }) => getJson<Explained>(`/v1/rollouts/${encodeURIComponent(rollout)}/explain`, signal),
    // One that is settled does not change; one that waits for others may.
    refetchInterval: ({ state: { data } }) => (isSettled(data) ? false : LIVE_MS),
  });

export interface SpanRow {
  span_id: string;
  parent_id: string | null;
  name: string;
  status: string;
  start: number;
  end: number | null;
  is_llm_call: boolean;
  has_reward: boolean;
  log_partition: number;
  log_offset: number;
}

export interface SpanSkeleton {
  origin_unix_nano: string;
  spans: SpanRow[];
}

/**
 * What the tree needs, and no more: some 100 bytes a span. Times are microseconds since the first span: exact, and small
 * enough for JSON's numbers; `origin` is in the first row alone.
 */
const SPANS = `
WITH mine AS (
  SELECT span_id, parent_id, name, status, start_unix_nano, end_unix_nano, is_llm_call, has_reward, log_partition,
    log_offset, min(start_unix_nano) FILTER (start_unix_nano > 0) OVER () AS origin
  FROM spans WHERE rollout_id = $rollout
), timed AS (
  SELECT * EXCLUDE (start_unix_nano, end_unix_nano),
    CASE WHEN start_unix_nano > 0 THEN (start_unix_nano - origin) / 1e3 ELSE 0 END AS start,
    CASE WHEN end_unix_nano > 0 THEN (end_unix_nano - origin) / 1e3 END AS end
  FROM mine
)
SELECT * REPLACE (CASE WHEN row_number() OVER (ORDER BY start, log_offset) = 1 THEN origin::VARCHAR END AS origin)
FROM timed ORDER BY start, log_offset`;

/** A span that has come stays as it is, so their number tells whether others have: all of them may be megabytes. */
const SPANS_COUNTED = "SELECT count(*) AS count FROM spans WHERE rollout_id = $rollout";

export const spansQuery = (rollout: string) =>
  queryOptions({
    queryKey: ["spans", rollout],
    queryFn: async ({ signal, client, queryKey }): Promise<SpanSkeleton> => {
      const had = client.getQueryData<SpanSkeleton>(queryKey);
      if (had) {
        const [now] = await ask<{ count: number }>(SPANS_COUNTED, { rollout }, signal);
        if (now?.count === had.spans.length) return had;
      }
      const rows = await ask<SpanRow & { origin: string | null }>(SPANS, { rollout }, signal);
      return { origin_unix_nano: rows[0]?.origin ?? "0", spans: rows };
    },
    meta: { reads: ["spans"] },
  });

export interface SpanDetail {
  attempt_id: string | null;
  name: string;
  trace_id: string;
  status_message: string | null;
  start_unix_nano: string;
  end_unix_nano: string | null;
  attributes: string | null;
  events: string | null;
  links: string | null;
  scope_name: string | null;
  llm_request_json: string | null;
  llm_response_json: string | null;
  characters: number;
  llm_error_message: string | null;
  llm_http_status: number | null;
  log_partition: number;
  log_offset: number;
}

/** Beyond this, texts of a span come cut: enough for a book, and no burden for a browser. */
export const TEXT_CHARACTERS_MAX = 1_000_000;

const SPAN = `
SELECT attempt_id, name, trace_id, status_message, start_unix_nano::VARCHAR AS start_unix_nano,
  end_unix_nano::VARCHAR AS end_unix_nano, left(attributes::VARCHAR, ${TEXT_CHARACTERS_MAX}) AS attributes,
  left(events::VARCHAR, ${TEXT_CHARACTERS_MAX}) AS events, left(links::VARCHAR, ${TEXT_CHARACTERS_MAX}) AS links, scope_name,
  left(llm_request_json, ${TEXT_CHARACTERS_MAX}) AS llm_request_json,
  left(llm_response_json, ${TEXT_CHARACTERS_MAX}) AS llm_response_json,
  greatest(length(attributes::VARCHAR), length(llm_request_json), length(llm_response_json)) AS characters,
  llm_error_message, llm_http_status,
  log_partition, log_offset
FROM spans WHERE rollout_id = $rollout AND span_id = $span AND log_partition = $partition AND log_offset = $offset`;

export const spanQuery = (rollout: string, span: SpanRow | undefined) =>
  queryOptions({
    queryKey: ["span", rollout, span?.span_id, span?.log_partition, span?.log_offset],
    queryFn: async ({ signal }) => {
      if (!span) return null;
      const place = { partition: span.log_partition, offset: span.log_offset };
      return (await ask<SpanDetail>(SPAN, { rollout, span: span.span_id, ...place }, signal))[0] ?? null;
    },
    enabled: span !== undefined,
    staleTime: Infinity,
  });

export interface TokenRow {
  call_index: number;
  span_id: string;
  prompt_token_ids: number[];
  response_token_ids: number[];
  response_logprobs: number[] | null;
  response_mask: number[];
  reward: number | null;
  policy_version: number | null;
  policy_version_runs: { first_token: number; policy_version: number }[] | null;
  finish_reason: string | null;
  log_partition: number;
  log_offset: number;
  /** Reward of the rollout minus the mean of its group's; `null` where one of both is unknown. */
  above_mean: number | null;
  /** Sample standard deviation of the group's rewards; `null` of fewer than two. */
  deviation: number | null;
  /** `above_mean` divided by it, of a run whose options say that its trainer does so; else `null`. */
  divided: number | null;
  /** What each response token says; `null` where the proxy did not see it. */
  texts: string[] | null;
}

const TOKENS = `
WITH finished AS (
  SELECT rollout_id, run_id, mode, coalesce(group_id, rollout_id) AS group_id, reward FROM trajectories_latest WHERE final
), own AS (SELECT run_id, mode, group_id, reward FROM finished WHERE rollout_id = $rollout),
compared AS (
  SELECT own.reward - if(min(finished.reward) = max(finished.reward), min(finished.reward), avg(finished.reward)) AS above_mean,
    stddev_samp(finished.reward) AS deviation, any_value(mode) AS mode
  FROM finished JOIN own USING (run_id, mode, group_id) GROUP BY own.reward
), made AS (
  SELECT arg_min(made_with, version)::JSON ->> '$.options' AS options
  FROM resources WHERE run_id = (SELECT any_value(run_id) FROM own) AND made_with::VARCHAR <> '{}'
)
SELECT (SELECT above_mean FROM compared) AS above_mean, (SELECT deviation FROM compared) AS deviation,
  (SELECT above_mean / (deviation + 1e-6) FROM compared, made WHERE mode = 'train' AND options ->> '$.advantage' = 'grpo'
    AND options ->> '$.advantage_per' = 'rollout' AND options ->> '$.reward_missing' = 'exclude'
    AND options ->> '$.reward_dimensions' = '{}' AND options ->> '$.reward_model' IS NULL
    AND options ->> '$.kl_reward_coefficient' = '0.0') AS divided,
  call_index, span_id, prompt_token_ids, response_token_ids, response_logprobs, response_mask, reward,
  policy_version, policy_version_runs, finish_reason, log_partition, log_offset, said.texts
FROM triplets
LEFT JOIN (
  SELECT llm_choice_index AS choice_index, any_value(list_transform(
    range(1, len(llm_response_token_ends) + 1),
    lambda i: llm_response_tokens_text[coalesce(llm_response_token_ends[i - 1], 0) + 1 : llm_response_token_ends[i]]
  )) AS texts
  FROM spans_raw WHERE rollout_id = $rollout AND span_id = $span GROUP BY llm_choice_index
) AS said USING (choice_index)
WHERE rollout_id = $rollout AND span_id = $span ORDER BY choice_index`;

export const tokensQuery = (rollout: string, span: string) =>
  queryOptions({
    queryKey: ["tokens", rollout, span],
    queryFn: ({ signal }) => ask<TokenRow>(TOKENS, { rollout, span }, signal),
    staleTime: Infinity,
  });
