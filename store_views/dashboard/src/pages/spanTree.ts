/** Spans in the order of their tree: parents before children, children by their start. */

import type { SpanRow } from "../api/rollouts";

export interface Placed {
  span: SpanRow;
  depth: number;
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
    const left: Placed[] = [{ span: from, depth: 0 }];
    for (let next = left.pop(); next; next = left.pop()) {
      if (seen.has(next.span)) continue;
      seen.add(next.span);
      placed.push(next);
      const below = children.get(next.span.span_id) ?? [];
      for (const child of below.toReversed()) left.push({ span: child, depth: next.depth + 1 });
    }
  };
  for (const root of roots) walk(root);
  for (const span of spans) if (!seen.has(span)) walk(span); // of a cycle of parents
  return placed;
}
