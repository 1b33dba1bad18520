/** Spans in the order of their tree: parents before children, children by their start. */

import type { SpanRow } from "../api/rollouts";

export interface Placed {
  span: SpanRow;
  depth: number;
  hasChildren: boolean;
}

export function spanKey(span: SpanRow): string {
  return `${span.log_partition}-${span.log_offset}`;
}

/** Spans whose parent is missing, or that are among their own parents, count as roots; each span comes once. */
export function placeSpans(spans: readonly SpanRow[]): Placed[] {
  const known = new Set(spans.map((span) => span.span_id));
  const children = new Map<string, SpanRow[]>();
  const roots: SpanRow[] = [];
  for (const span of spans) {
    const parent = span.parent_id;
    if (parent && parent !== span.span_id && known.has(parent)) {
      const siblings = children.get(parent);
      if (siblings) siblings.push(span);
      else children.set(parent, [span]);
    } else roots.push(span);
  }
  const placed: Placed[] = [];
  const seen = new Set<SpanRow>();
  const walk = (from: SpanRow) => {
    const left = [{ span: from, depth: 0 }];
    for (let next = left.pop(); next; next = left.pop()) {
      if (seen.has(next.span)) continue;
      seen.add(next.span);
      const below = children.get(next.span.span_id) ?? [];
      placed.push({ ...next, hasChildren: below.some((child) => !seen.has(child)) });
      for (const child of below.toReversed()) left.push({ span: child, depth: next.depth + 1 });
    }
  };
  for (const root of roots) walk(root);
  for (const span of spans) if (!seen.has(span)) walk(span); // of a cycle of parents
  return placed;
}

/** Without what lies below the spans that are folded. */
export function unfolded(placed: readonly Placed[], folded: ReadonlySet<string>): Placed[] {
  if (folded.size === 0) return [...placed];
  let hiddenBelow = Infinity;
  return placed.filter(({ span, depth }) => {
    if (depth > hiddenBelow) return false;
    hiddenBelow = folded.has(spanKey(span)) ? depth : Infinity;
    return true;
  });
}

/** Those whose name, kind or error has each of the words. */
export function found(placed: readonly Placed[], words: string): Placed[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  return placed.filter(({ span }) => {
    const told = `${span.name} ${span.kind ?? "span"} ${span.error === null ? "" : `error ${span.error}`}`.toLowerCase();
    return wanted.every((word) => told.includes(word));
  });
}

const ROUND = [1, 2, 5, 10];

/** Times for a ruler, in the unit of `total`: at most about six, round, the first 0. */
export function ruler(total: number): number[] {
  const power = 10 ** Math.floor(Math.log10(Math.max(total / 6, 1e-9)));
  const step = power * (ROUND.find((factor) => factor * power >= total / 6) ?? 10);
  return Array.from({ length: Math.floor(total / step) + 1 }, (_, index) => index * step);
}
