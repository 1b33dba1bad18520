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

export const dropsQuery = (run: string | undefined) =>
  queryOptions({
    queryKey: ["drops", run],
    queryFn: ({ signal }) => ask(":drops", { run: run ?? null }, signal) as Promise<DropRow[]>,
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

export const lettersQuery = queryOptions({
  queryKey: ["dead-letters"],
  queryFn: ({ signal }) => ask(":dead-letters", {}, signal) as Promise<LetterRow[]>,
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

export const workersQuery = queryOptions({
  queryKey: ["workers"],
  queryFn: ({ signal }) => ask(":workers", {}, signal) as Promise<WorkerRow[]>,
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

export const resourcesQuery = (run: string) =>
  queryOptions({
    queryKey: ["resources", run],
    queryFn: ({ signal }) => ask(":resources", { run }, signal) as Promise<ResourcesRow[]>,
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

export const promptsQuery = (run: string) =>
  queryOptions({
    queryKey: ["prompts", run],
    queryFn: ({ signal }) => ask(":prompts", { run }, signal) as Promise<PromptRow[]>,
    meta: { reads: ["prompts"] },
  });

export interface CatalogueColumn {
  table_name: string;
  column_name: string;
}

export const catalogueQuery = queryOptions({
  queryKey: ["catalogue"],
  queryFn: ({ signal }) => ask(":catalogue", {}, signal) as Promise<CatalogueColumn[]>,
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

export interface CostRow {
  model: string;
  calls: number;
  prompt_tokens: number;
  response_tokens: number;
  cost: number | null;
  calls_without_price: number;
}

export const costQuery = (run: string) =>
  queryOptions({
    queryKey: ["cost", run],
    queryFn: ({ signal }) => ask(":cost-by-model", { run }, signal) as Promise<CostRow[]>,
    meta: { reads: ["costs"] },
  });
