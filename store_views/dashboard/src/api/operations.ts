/** What was lost, who works, and which resources there were. */

import { queryOptions } from "@tanstack/react-query";

import { ask, getJson, type Value } from "./request";

export interface DropRow {
  reason: string;
  is_llm_call: boolean;
  count: number;
  detail: string | null;
  rollout_id: string | null;
  span_id: string | null;
  log_partition: number;
  log_offset: number;
}

const DROPS = `
SELECT reason, is_llm_call, count(*) AS count, arg_max(detail, log_offset) AS detail,
  arg_max(rollout_id, log_offset) AS rollout_id, arg_max(span_id, log_offset) AS span_id,
  arg_max(log_partition, log_offset)::INTEGER AS log_partition, max(log_offset) AS log_offset
FROM dropped
WHERE $run IS NULL OR rollout_id IS NULL OR rollout_id IN (SELECT rollout_id FROM rollouts WHERE run_id = $run)
GROUP BY ALL ORDER BY count DESC`;

export const dropsQuery = (run: string | undefined) =>
  queryOptions({
    queryKey: ["drops", run],
    queryFn: ({ signal }) => ask<DropRow>(DROPS, { run: run ?? null }, signal),
    meta: { reads: ["dropped"] },
  });

export interface LetterRow {
  reason: string;
  detail: string;
  origin_topic: string;
  origin_partition: number;
  origin_offset: number;
  value_size: number;
  value: string | null;
  reported_by: string;
  observed_unix_nano: string;
  log_partition: number;
  log_offset: number;
}

/** Of the value, what is printable as text; DuckDB writes other bytes as \\xNN. */
const LETTERS = `
SELECT reason, detail, origin_topic, origin_partition, origin_offset, value_size, left(value::VARCHAR, 2000) AS value,
  reported_by, observed_unix_nano::VARCHAR AS observed_unix_nano, log_partition, log_offset
FROM dead_letters ORDER BY log_offset DESC LIMIT 200`;

export const lettersQuery = queryOptions({
  queryKey: ["dead-letters"],
  queryFn: ({ signal }) => ask<LetterRow>(LETTERS, {}, signal),
  meta: { reads: ["dead_letters"] },
});

export interface WorkerRow {
  worker_id: string;
  kind: string;
  host: string;
  pid: number;
  status: string;
  rollouts: number;
  first_rollout: string | null;
  heartbeat_unix_nano: string;
  stats_json: string;
}

const WORKERS = `
SELECT worker_id, kind, host, pid, status, len(rollout_ids) AS rollouts, rollout_ids[1] AS first_rollout,
  heartbeat_unix_nano::VARCHAR AS heartbeat_unix_nano, stats_json
FROM workers ORDER BY workers.heartbeat_unix_nano DESC LIMIT 500`;

export const workersQuery = queryOptions({
  queryKey: ["workers"],
  queryFn: ({ signal }) => ask<WorkerRow>(WORKERS, {}, signal),
  meta: { reads: ["workers"] },
});

export interface ResourcesRow {
  resources_id: string;
  version: number | null;
  model: string | null;
  checkpoint_url: string | null;
  created_unix_nano: string;
  resources: string;
  made_with: string | null;
  rollouts: number | null;
  reward: number | null;
  log_partition: number;
  log_offset: number;
}

const RESOURCES = `
SELECT version.resources_id, version, model, checkpoint_url, created_unix_nano::VARCHAR AS created_unix_nano,
  resources::VARCHAR AS resources, made_with::VARCHAR AS made_with, used.rollouts, used.reward, log_partition, log_offset
FROM resources AS version
LEFT JOIN (SELECT resources_id, count(*) AS rollouts, avg(reward) AS reward FROM trajectories_latest
  WHERE final AND run_id = $run GROUP BY resources_id) AS used USING (resources_id)
WHERE run_id = $run ORDER BY log_offset DESC LIMIT 500`;

export const resourcesQuery = (run: string) =>
  queryOptions({
    queryKey: ["resources", run],
    queryFn: ({ signal }) => ask<ResourcesRow>(RESOURCES, { run }, signal),
    meta: { reads: ["resources", "trajectories_latest"] },
  });

export interface PromptRow {
  prompt: string;
  parent: string | null;
  critique: string | null;
  template: string | null;
  score: number | null;
  tasks: number | null;
  measurements: number;
}

const PROMPTS = `
SELECT prompt, parent, critique, template, score, tasks, measurements FROM prompts WHERE run_id = $run
ORDER BY score DESC NULLS LAST, prompt`;

export const promptsQuery = (run: string) =>
  queryOptions({
    queryKey: ["prompts", run],
    queryFn: ({ signal }) => ask<PromptRow>(PROMPTS, { run }, signal),
    meta: { reads: ["prompts"] },
  });

export interface CatalogueColumn {
  table_name: string;
  column_name: string;
}

const CATALOGUE = `
SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal AND schema_name = 'main'
ORDER BY table_name, column_index`;

export const catalogueQuery = queryOptions({
  queryKey: ["catalogue"],
  queryFn: ({ signal }) => ask<CatalogueColumn>(CATALOGUE, {}, signal),
  staleTime: Infinity,
});

export interface NamedQuery {
  name: string;
  doc: string;
  sql: string;
  parameters: { name: string; default: Value; meaning: string }[];
}

export const namedQueries = queryOptions({
  queryKey: ["named-queries"],
  queryFn: async ({ signal }) => (await getJson<{ queries: NamedQuery[] }>("/v1/named-queries", signal)).queries,
  staleTime: Infinity,
});
