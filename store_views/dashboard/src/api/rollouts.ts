/** What the view knows of rollouts: pages of their list, and all of one. */

import { infiniteQueryOptions, keepPreviousData, type QueryFunctionContext, queryOptions } from "@tanstack/react-query";

import { ask, askPage, getJson, type Parameters } from "./request";
import { LIVE_MS } from "./runs";
import { isSettled } from "./settled";

export const PAGE_ROWS = 100;

export interface RolloutFilters {
  run?: string | undefined;
  status?: string | undefined;
  mode?: string | undefined;
  group?: string | undefined;
  reason?: string | undefined;
  step?: number | undefined;
  text?: string | undefined;
  /** Rewards from and to. */
  low?: number | undefined;
  high?: number | undefined;
  tool?: string | undefined;
  error?: string | undefined;
  task?: string | undefined;
  sort?: string | undefined;
  /** Any text: with the last answer of each. */
  answers?: string | undefined;
}

export interface RolloutRow {
  rollout_id: string;
  run_id: string;
  mode: string;
  status: string;
  group_id: string | null;
  attempt_count: number;
  input_json: string;
  /** Hash of the input. */
  task: string;
  enqueued_unix_nano: string;
  seconds: number | null;
  reward: number | null;
  call_count: number | null;
  step: number | null;
  reason_code: string | null;
  /** Where they are sorted. */
  sort_key?: number | null;
  /** Where answers are asked for: the text of the last, and its tool calls as JSON. */
  answer?: string | null;
  tool_calls?: string | null;
}

interface Cursor {
  nanos: string;
  id: string;
  sort_key?: number;
}

/** The parameters of the query that narrow its answer. */
function given(filters: RolloutFilters, after: Cursor | null, limit: number): Parameters {
  const { low: reward_min, high: reward_max, run, step, ...others } = filters;
  const texts = Object.entries(others).filter(([, value]) => value);
  const all = { ...Object.fromEntries(texts), run, step, reward_min, reward_max, limit, ...after };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined)) as Parameters;
}

function after(page: readonly RolloutRow[], limit: number): Cursor | null {
  const last = page.at(-1);
  if (page.length < limit || !last) return null;
  const sorted = typeof last.sort_key === "number" ? { sort_key: last.sort_key } : {};
  return { nanos: last.enqueued_unix_nano, id: last.rollout_id, ...sorted };
}

export const rolloutsQuery = (filters: RolloutFilters) =>
  infiniteQueryOptions({
    queryKey: ["rollouts", filters],
    queryFn: ({ pageParam, signal }) => ask(":rollouts", given(filters, pageParam, PAGE_ROWS), signal) as Promise<RolloutRow[]>,
    initialPageParam: null as Cursor | null,
    getNextPageParam: (page): Cursor | null => after(page, PAGE_ROWS),
    placeholderData: keepPreviousData,
    meta: { reads: ["rollouts", "trajectories", "trained"] },
  });

const EXPORTED_AT_ONCE = 5_000;

/** All that the filters let through, with whole inputs and last answers. */
export async function allRollouts(filters: RolloutFilters): Promise<RolloutRow[]> {
  const rows: RolloutRow[] = [];
  let cursor: Cursor | null = null;
  let limit = EXPORTED_AT_ONCE;
  do {
    const asked = { ...given({ ...filters, answers: "1" }, cursor, limit), whole: "1" };
    const page = (await askPage(":rollouts", asked)) as { rows: RolloutRow[]; truncated: boolean };
    if (page.truncated && page.rows.length === 0)
      throw new Error("An input or an answer is larger than the view's limit of one reply. Ask for it with `lightstream sql`.");
    rows.push(...page.rows);
    // Where texts are long, the view answers with fewer rows than there are.
    cursor = after(page.rows, page.truncated ? page.rows.length : limit);
    limit = Math.min(EXPORTED_AT_ONCE, 2 * page.rows.length);
  } while (cursor);
  return rows;
}

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

export const explainQuery = (rollout: string) =>
  queryOptions({
    queryKey: ["explain", rollout],
    queryFn: ({ signal }) => getJson<Explained>(`/v1/rollouts/${encodeURIComponent(rollout)}/explain`, signal),
    // One that is settled does not change; one that waits for others may.
    refetchInterval: ({ state: { data } }) => (data && isSettled(data.rollout.status, data.reason_code) ? false : LIVE_MS),
  });

export interface SpanRow {
  span_id: string;
  parent_id: string | null;
  name: string;
  status: string;
  start: number;
  end: number | null;
  /** `LLM`, `tool`, `reward`, `agent`, …; null of any other. */
  kind: string | null;
  /** Begin of the message of one that failed. */
  error: string | null;
  log_partition: number;
  log_offset: number;
}

export interface SpanSkeleton {
  origin_unix_nano: string;
  spans: SpanRow[];
}

interface Marked<Data> {
  marks: string;
  data: Data;
}

/** Of every rollout something comes all the time; one is asked for again only where something came of it. */
async function unlessSame<Data>({ client, queryKey }: QueryFunctionContext, rollout: string, askAll: () => Promise<Data>): Promise<Marked<Data>> {
  // What panels ask at the same time is one request.
  const marks = await client.fetchQuery({
    queryKey: ["rollout-marks", rollout],
    queryFn: async () => JSON.stringify(await ask(":rollout-marks", { rollout })),
    staleTime: 0,
  });
  const had = client.getQueryData<Marked<Data>>(queryKey);
  return had?.marks === marks ? had : { marks, data: await askAll() };
}

export const spansQuery = (rollout: string) =>
  queryOptions({
    queryKey: ["spans", rollout],
    queryFn: (context) =>
      unlessSame(context, rollout, async () => {
        const rows = await (ask(":spans", { rollout }, context.signal) as Promise<(SpanRow & { origin: string | null })[]>);
        return { origin_unix_nano: rows[0]?.origin ?? "0", spans: rows as SpanRow[] };
      }),
    select: ({ data }: Marked<SpanSkeleton>) => data,
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
  has_messages: boolean;
  characters: number;
  /** Of a tool, an agent or a retrieval. */
  input: string | null;
  output: string | null;
  llm_error_message: string | null;
  llm_http_status: number | null;
  log_partition: number;
  log_offset: number;
}

/** Beyond this, texts of a span come cut: enough for a book, and no burden for a browser. */
export const TEXT_CHARACTERS_MAX = 1_000_000;

export const spanQuery = (rollout: string, span: SpanRow | undefined) =>
  queryOptions({
    queryKey: ["span", rollout, span?.span_id, span?.log_partition, span?.log_offset],
    queryFn: async ({ signal }) => {
      if (!span) return null;
      const place = { partition: span.log_partition, offset: span.log_offset };
      return (await (ask(":span", { rollout, span: span.span_id, ...place }, signal) as Promise<SpanDetail[]>))[0] ?? null;
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
  /** What each response token says; `null` where the proxy did not see it. */
  texts: string[] | null;
}

export const tokensQuery = (rollout: string, span: string) =>
  queryOptions({
    queryKey: ["tokens", rollout, span],
    queryFn: ({ signal }) => ask(":tokens", { rollout, span }, signal) as Promise<TokenRow[]>,
    staleTime: Infinity,
  });

/** A rollout at one glance. */
export interface Figures {
  reward: number | null;
  /** Reward of the rollout minus the mean of its group's; `null` where one of both is unknown. */
  above_mean: number | null;
  /** Sample standard deviation of the group's rewards; `null` of fewer than two. */
  deviation: number | null;
  /** `above_mean` divided by it, of a run whose options say that its trainer does so; else `null`. */
  divided: number | null;
  policy_first: number | null;
  policy_last: number | null;
  prompt_tokens: number | null;
  response_tokens: number | null;
  cost: number | null;
  calls_without_price: number;
  step: number | null;
  /** Hash of the input. */
  task: string | null;
  /** Other rollouts with that input, of any run. */
  same_task: number;
}

export const rolloutFiguresQuery = (rollout: string) =>
  queryOptions({
    queryKey: ["rollout-figures", rollout],
    queryFn: (context) =>
      unlessSame(context, rollout, async () => (await (ask(":rollout-figures", { rollout }, context.signal) as Promise<Figures[]>))[0] ?? null),
    select: ({ data }: Marked<Figures | null>) => data,
    meta: { reads: ["trajectories", "trained"] },
  });

/** A message of a call, in the order of the conversation. */
export interface MessageRow {
  attempt_id: string | null;
  span_id: string;
  agent_name: string;
  /** False where the agent's messages begin with those of no earlier call. */
  continues: boolean;
  /** The earlier call whose messages this one begins with, and goes on from. */
  continued_span_id: string | null;
  error: string | null;
  call_index: number | null;
  reward: number | null;
  policy_version: number | null;
  sampled: number | null;
  response_tokens: number | null;
  place: number | null;
  role: string | null;
  text: string | null;
  characters: number | null;
  reasoning: string | null;
  tool_calls: string | null;
  tool_call_id: string | null;
  /** Messages beyond the last that is given. */
  left_out: number;
}

export const conversationQuery = (rollout: string, span: string | null = null) =>
  queryOptions({
    queryKey: ["conversation", rollout, span],
    queryFn: (context) => unlessSame(context, rollout, () => ask(":conversation", { rollout, span }, context.signal) as Promise<MessageRow[]>),
    select: ({ data }: Marked<MessageRow[]>) => data,
    meta: { reads: ["spans", "trajectories"] },
  });
