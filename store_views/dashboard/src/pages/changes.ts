/** A step beside another: what its rollouts did otherwise, then what its metrics say. */

import type { StepChange } from "../api/agent";
import type { StepRow } from "../api/runs";

export interface Change {
  kind: StepChange["kind"] | "metric";
  name: string;
  before: number | null;
  now: number | null;
  example: string | null;
  /** Undefined where neither is better by itself. */
  better?: boolean | undefined;
}

const ORDER = ["rollouts", "error", "tool errors", "tool calls", "length", "metric", "task"];
const HIGHER_IS_BETTER: Record<string, boolean> = { rollouts: true, task: true, error: false, "tool errors": false };
/** Metrics that differ by less, as a share of their size, are left out. */
const SHARE_MIN = 0.05;
const METRICS_MAX = 8;

export function changesOf(step: StepRow, other: StepRow, found: readonly StepChange[]): Change[] {
  const rows: Change[] = found.map((row) => ({ ...row, better: judged(row.kind, row.before, row.now) }));
  const metrics = Object.keys(step.metrics)
    .filter((name) => !name.startsWith("seconds/") && name !== "reward/mean")
    .map((name) => ({ kind: "metric" as const, name, before: other.metrics[name] ?? null, now: step.metrics[name] ?? null, example: null }))
    .filter((row) => relative(row) >= SHARE_MIN)
    .toSorted((one, two) => relative(two) - relative(one))
    .slice(0, METRICS_MAX);
  return [...rows, ...metrics].toSorted((one, two) => ORDER.indexOf(one.kind) - ORDER.indexOf(two.kind));
}

/** Names a row: two tasks may begin alike. */
export function changeKey({ kind, name, example }: Change): string {
  return JSON.stringify([kind, name, kind === "task" ? example : null]);
}

function judged(kind: string, before: number | null, now: number | null): boolean | undefined {
  const isBetter = HIGHER_IS_BETTER[kind];
  const change = difference({ before, now });
  return isBetter === undefined || !change ? undefined : change > 0 === isBetter;
}

/** Null where a side is missing, or is no number: nobody knows what changed. */
export function difference({ before, now }: Pick<Change, "before" | "now">): number | null {
  return typeof before !== "number" || typeof now !== "number" || Number.isNaN(now - before) ? null : now - before;
}

function relative({ before, now }: Pick<Change, "before" | "now">): number {
  if (before === null || now === null) return 0;
  // That a metric became no number is the greatest change of all.
  if (!Number.isFinite(before) || !Number.isFinite(now)) return Number.isFinite(before) === Number.isFinite(now) ? 0 : Number.MAX_VALUE;
  const size = Math.max(Math.abs(before), Math.abs(now));
  return size === 0 ? 0 : Math.abs(now - before) / size;
}
