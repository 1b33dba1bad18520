/** What somebody should know about a run before anything else. Shares are of what could have gone well. */

import type { CountByReason, Meanings, NotTrainedReason, RunFigures, StepRow } from "../api/runs";
import { millis, percent, plural } from "../format";

export interface Alarm {
  bad: boolean;
  title: string;
  advice: string;
  /** The filter of the list of rollouts that shows those concerned. */
  reason?: string;
  status?: string;
}

/** Below these shares, losses are the usual course of training. */
const DROPPED_SHARE = 0.2;
const FAILED_SHARE = 0.2;
const NO_REWARD_SHARE = 0.2;
const NO_SIGNAL_SHARE = 0.7;
/** Rollouts that wait this long without any change have nobody to run them. */
const STANDS_STILL_S = 60;

interface Known {
  figures: RunFigures;
  calls: CountByReason[];
  notTrained: NotTrainedReason[];
  steps: StepRow[];
  meanings: Meanings | undefined;
  now: number;
}

export function alarmsOf({ figures, calls, notTrained, steps, meanings, now }: Known): Alarm[] {
  const alarms: Alarm[] = [];
  const made = sum(calls);
  for (const { reason, count: lost } of calls.filter((row) => row.fate === "dropped"))
    if (lost > DROPPED_SHARE * made)
      alarms.push({
        bad: lost > 0.5 * made,
        title: `${percent(lost, made)} of the LLM calls were dropped: ${reason ?? "unknown"}`,
        advice: meanings?.drops[reason ?? ""] ?? "",
      });
  const ended = figures.succeeded + figures.failed;
  if (figures.failed > FAILED_SHARE * ended)
    alarms.push({
      bad: figures.failed > 0.5 * ended,
      title: `${percent(figures.failed, ended)} of the finished rollouts failed`,
      advice: "Open one: the error of its last attempt says why.",
      status: "failed",
    });
  for (const row of notTrained) {
    const share = row.count / Math.max(1, ended);
    const threshold = row.reason_code === "no_signal" ? NO_SIGNAL_SHARE : NO_REWARD_SHARE;
    if (
      [
        "no_reward",
        "no_signal",
        "stale",
        "no_logprobs",
        "too_long",
        "not_comparable",
        "other_policy",
        "other_temperature",
        "other_sampling",
        "not_finite",
        "logprob_gap",
      ].includes(row.reason_code) &&
      share > threshold
    )
      alarms.push({
        bad: share > 0.5 && row.reason_code !== "no_signal",
        title: `${percent(row.count, ended)} of the finished rollouts did not train: ${row.meaning}`,
        advice: row.next_step,
        reason: row.reason_code,
      });
  }
  const discarded = steps.filter((step) => step.outcome === "discarded").length;
  if (discarded > 0 && steps.at(-1)?.outcome === "discarded")
    alarms.push({
      bad: true,
      title: `The last step was discarded (${plural(discarded, "step")} so far)`,
      advice: steps.at(-1)?.cause || "Nothing in it could be trained on; the reasons are listed below.",
    });
  else if (steps.at(-1)?.cause) alarms.push({ bad: true, title: "Something of the last step was not learned from", advice: steps.at(-1)?.cause ?? "" });
  if (figures.waiting > 0 && figures.running === 0 && figures.last_unix_nano) {
    const still = (now - millis(figures.last_unix_nano)) / 1000;
    if (still > STANDS_STILL_S)
      alarms.push({
        bad: false,
        title: `${plural(figures.waiting, "rollout")} ${figures.waiting === 1 ? "waits" : "wait"}, and none is running`,
        advice: "No Runner takes them: start one with `lightstream runner`, or see with `lightstream status` what runs.",
        status: "queuing",
      });
  }
  return alarms;
}

function sum(rows: CountByReason[]): number {
  return rows.reduce((total, row) => total + row.count, 0);
}
