/** The spans of a rollout as a tree with their times. Only the rows in sight are in the document. */

import { type KeyboardEvent, useEffect, useMemo, useRef } from "react";
import { useVirtualizer } from "@tanstack/react-virtual";

import type { SpanRow } from "../api/rollouts";
import { duration } from "../format";
import { classes } from "../ui/basics";
import styles from "./pages.module.css";
import { placeSpans } from "./spanTree";

const ROW_PX = 28;

export function spanKey(span: SpanRow): string {
  return `${span.log_partition}-${span.log_offset}`;
}

interface TimelineProps {
  spans: readonly SpanRow[];
  selected: string | undefined;
  onSelect: (key: string) => void;
}

export function Timeline({ spans, selected, onSelect }: TimelineProps) {
  const placed = useMemo(() => placeSpans(spans), [spans]);
  const total = useMemo(() => spans.reduce((end, span) => Math.max(end, span.end ?? span.start, span.start), 1), [spans]);
  const scroller = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({
    count: placed.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_PX,
    overscan: 12,
  });
  const at = placed.findIndex(({ span }) => spanKey(span) === selected);
  useEffect(() => {
    if (at >= 0) rows.scrollToIndex(at, { align: "auto" });
  }, [at, rows]);

  const onKeyDown = (event: KeyboardEvent) => {
    const moves: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: 12, PageUp: -12, Home: -placed.length, End: placed.length };
    const move = moves[event.key];
    if (move === undefined) return;
    event.preventDefault();
    const next = placed[Math.min(placed.length - 1, Math.max(0, at + move))];
    if (next) onSelect(spanKey(next.span));
  };

  return (
    <div
      ref={scroller}
      className={styles["timeline"]}
      role="tree"
      aria-label="Spans"
      tabIndex={0}
      aria-activedescendant={selected ? `span-${selected}` : undefined}
      onKeyDown={onKeyDown}
    >
      <div className={styles["timelineRows"]} style={{ height: rows.getTotalSize() }} role="none">
        {rows.getVirtualItems().map((row) => {
          const entry = placed[row.index];
          if (!entry) return null;
          const { span, depth } = entry;
          const key = spanKey(span);
          return (
            <div
              key={key}
              id={`span-${key}`}
              role="treeitem"
              aria-level={depth + 1}
              aria-posinset={row.index + 1}
              aria-setsize={placed.length}
              aria-selected={key === selected}
              aria-label={`${span.name}, ${kindOf(span)}, ${lasted(span)}`}
              className={styles["span"]}
              style={{ transform: `translateY(${row.start}px)` }}
              onClick={() => onSelect(key)}
            >
              <span className={styles["spanName"]} style={{ paddingLeft: Math.min(depth, 20) * 16 }}>
                {kindOf(span) !== "span" && <span className={styles["spanKind"]}>{kindOf(span)}</span>}
                {span.name}
              </span>
              <span className={styles["spanTrack"]}>
                <span className={classes(styles["spanBar"], styles[barOf(span)])} style={barPlace(span, total)} />
              </span>
              <span className={styles["spanTime"]}>{lasted(span)}</span>
            </div>
          );
        })}
      </div>
    </div>
  );
}

function kindOf(span: SpanRow): string {
  if (span.is_llm_call) return "LLM";
  return span.has_reward ? "reward" : "span";
}

function barOf(span: SpanRow): string {
  if (span.status === "error") return "spanError";
  if (span.is_llm_call) return "spanCall";
  return span.has_reward ? "spanReward" : "";
}

function barPlace(span: SpanRow, total: number) {
  const end = Math.max(span.end ?? span.start, span.start);
  return { left: `${(98 * span.start) / total}%`, width: `${(98 * (end - span.start)) / total}%` };
}

function lasted(span: SpanRow): string {
  return span.end === null ? "–" : duration((span.end - span.start) / 1e6);
}
