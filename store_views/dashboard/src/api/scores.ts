/** Scores that people give, and the rollouts that wait for one. */

import { queryOptions } from "@tanstack/react-query";

import { ask, postJson } from "./request";

export interface ScoreRow {
  name: string;
  value: number | null;
  comment: string;
  scored_by: string;
  key: string;
  compared_with: string | null;
  scored_span_id: string | null;
  scored_unix_nano: string;
  match: string | null;
  span_id: string;
  log_partition: number;
  log_offset: number;
}

export const scoresQuery = (rollout: string) =>
  queryOptions({
    queryKey: ["scores", rollout],
    queryFn: ({ signal }) => ask(":scores", { rollout }, signal) as Promise<ScoreRow[]>,
    meta: { reads: ["spans", "rewards"] },
  });

export interface UnscoredRow {
  rollout_id: string;
  run_id: string;
  mode: string;
  status: string;
  input_json: string;
  enqueued_unix_nano: string;
}

export const unscoredQuery = (run: string | undefined) =>
  queryOptions({
    queryKey: ["unscored", run],
    queryFn: ({ signal }) => ask(":unscored", { run: run ?? null }, signal) as Promise<UnscoredRow[]>,
    meta: { reads: ["rollouts", "spans"] },
  });

export interface AnswerRow {
  rollout_id: string;
  run_id: string;
  status: string;
  mode: string;
  input_json: string;
  reward: number | null;
  response_json: string | null;
}

export const answerQuery = (rollout: string) =>
  queryOptions({
    queryKey: ["answer", rollout],
    queryFn: async ({ signal }) => (await (ask(":answer", { rollout }, signal) as Promise<AnswerRow[]>))[0] ?? null,
    meta: { reads: ["spans", "trajectories_latest"] },
  });

/** What `POST /v1/feedback` takes. */
export interface Score {
  rollout_id: string;
  span_id?: string;
  score: number;
  name?: string;
  comment?: string;
  key: string;
}

export interface Scored {
  effect: "trajectory" | "revision" | "too_late";
  repeated: boolean;
}

export function sendScore(score: Score): Promise<Scored> {
  return postJson<Scored>("/v1/feedback", { ...score, by: "page" });
}

/** Names one click: sent again after an error it is the same score. */
export function newKey(): string {
  // `crypto.randomUUID` is missing where the page does not come by TLS.
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
