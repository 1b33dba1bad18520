/** Releases: the models that serve a name, their calls, the gate's reports, and changes of them. */

import { queryOptions } from "@tanstack/react-query";

import { ask, postJson } from "./request";

export interface ReleaseRow {
  release: string;
  revision: number;
  action: string;
  stable: string;
  candidate: string | null;
  previous: string | null;
  share: number;
  key: string;
  paused: boolean;
  rules: number;
  by: string;
  reason: string;
  report_id: string | null;
  report_outcome: string | null;
  offered_unix_nano: string | null;
  changed_unix_nano: string;
}

export const releasesQuery = queryOptions({
  queryKey: ["releases"],
  queryFn: ({ signal }) => ask(":releases", {}, signal) as Promise<ReleaseRow[]>,
  meta: { reads: ["releases", "gate_reports"] },
});

export interface AlarmRow {
  release: string;
  alarm: string;
  detail: string;
  next_step: string;
}

export const releaseAlarmsQuery = queryOptions({
  queryKey: ["release-alarms"],
  queryFn: ({ signal }) => ask(":release-alarms", {}, signal) as Promise<AlarmRow[]>,
  meta: { reads: ["release_alarms"] },
});

export interface ArmRow {
  arm: string;
  calls: number;
  keys: number;
  fallbacks: number;
  errors: number;
  rewarded: number;
  reward: number | null;
  cost: number | null;
  response_tokens: number | null;
  seconds: number | null;
  seconds_p95: number | null;
}

export const armsQuery = (release: string) =>
  queryOptions({
    queryKey: ["release-arms", release],
    queryFn: ({ signal }) => ask(":release-arms", { release }, signal) as Promise<ArmRow[]>,
    meta: { reads: ["release_calls", "releases"] },
  });

export interface ChangeRow {
  revision: number;
  action: string;
  stable: string;
  candidate: string | null;
  share: number;
  paused: boolean;
  by: string;
  reason: string;
  report_id: string | null;
  changed_unix_nano: string;
}

export const changesQuery = (release: string) =>
  queryOptions({
    queryKey: ["release-history", release],
    queryFn: ({ signal }) => ask(":release-history", { release }, signal) as Promise<ChangeRow[]>,
    meta: { reads: ["release_changes"] },
  });

/** A check of a report; the first columns are the report's, and a report without checks has one row. */
export interface CheckRow {
  report_id: string;
  stable: string;
  candidate: string;
  outcome: string;
  notes: string[];
  by: string;
  error_rate: number;
  created_unix_nano: string;
  task_set: string | null;
  figure: string | null;
  kind: string | null;
  tasks: number | null;
  stable_mean: number | null;
  candidate_mean: number | null;
  bound: number | null;
  probability: number | null;
  passed: boolean | null;
}

export const gateReportQuery = (release: string, report: string | null) =>
  queryOptions({
    queryKey: ["gate-report", release, report],
    queryFn: ({ signal }) => ask(":gate-report", { release, report }, signal) as Promise<CheckRow[]>,
    meta: { reads: ["gate_reports"] },
  });

/** What `POST /v1/releases/NAME` takes. */
export interface Change {
  action: "promote" | "rollback" | "to_previous" | "pause" | "resume" | "share";
  share?: number;
  reason?: string;
  /** The state that the change is for: of another one nothing is changed. */
  revision: number;
}

export function sendChange(release: string, change: Change): Promise<unknown> {
  return postJson(`/v1/releases/${encodeURIComponent(release)}`, change);
}
