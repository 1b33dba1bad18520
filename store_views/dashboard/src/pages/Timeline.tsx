/** The spans of a rollout as a tree with their times. Only the rows in sight are in the document. */

import { type KeyboardEvent, useEffect, useMemo, useRef, useState } from "react";
import { useVirtualizer } from "@tanstack/react-virtual";

import type { SpanRow } from "../api/rollouts";
import { duration } from "../format";
import { classes } from "../ui/basics";
import { type Placed, found, placeSpans, ruler, spanKey, unfolded } from "./spanTree";
import styles from "./timeline.module.css";

const ROW_PX = 28;
/** Share of the track that the last time stands at, so that its bar is seen. */
const TRACK = 98;

interface TimelineProps {
  spans: readonly SpanRow[];
  selected: string | undefined;
  /** True where somebody chose the span: then it is brought into sight. */
  isChosen: boolean;
  /** Words that a span must have; all are shown without them. */
  words: string;
  onSelect: (key: string) => void;
}

export function Timeline({ spans, selected, isChosen, words, onSelect }: TimelineProps) {
  const tree = useMemo(() => placeSpans(spans), [spans]);
  const [folded, setFolded] = useState<ReadonlySet<string>>(new Set());
  const placed = useMemo(() => (words ? found(tree, words) : unfolded(tree, folded)), [tree, folded, words]);
  const total = useMemo(() => spans.reduce((end, span) => Math.max(end, span.end ?? span.start, span.start), 1), [spans]);
  const scroller = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({ count: placed.length, getScrollElement: () => scroller.current, estimateSize: () => ROW_PX, overscan: 12 });
  const at = placed.findIndex(({ span }) => spanKey(span) === selected);
  useEffect(() => {
    if (at >= 0 && isChosen) rows.scrollToIndex(at, { align: "auto" });
  }, [at, isChosen, rows]);

  const fold = (key: string, isFolded: boolean) => {
    const changed = new Set(folded);
    if (isFolded) changed.add(key);
    else changed.delete(key);
    setFolded(changed);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const here = placed[at];
    if (here && !words && (event.key === "ArrowLeft" || event.key === "ArrowRight")) {
      event.preventDefault();
      if (here.hasChildren) fold(spanKey(here.span), event.key === "ArrowLeft");
      return;
    }
    const moves: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: 12, PageUp: -12, Home: -placed.length, End: placed.length };
    const move = moves[event.key];
    if (move === undefined) return;
    event.preventDefault();
    const next = placed[Math.min(placed.length - 1, Math.max(0, at + move))];
    if (next) onSelect(spanKey(next.span));
  };

  return (
    <>
      <div className={styles["ruler"]} aria-hidden="true">
        {ruler(total).map((time) => (
          <span key={time} style={{ left: `${(TRACK * time) / total}%` }}>
            {time === 0 ? "0" : duration(time / 1e6)}
          </span>
        ))}
      </div>
      <div
        ref={scroller}
        className={styles["timeline"]}
        role="tree"
        aria-label="Spans"
        tabIndex={0}
        aria-activedescendant={selected ? `span-${selected}` : undefined}
        onKeyDown={onKeyDown}
      >
        <div className={styles["rows"]} style={{ height: rows.getTotalSize() }} role="none">
          {rows.getVirtualItems().map(({ index, start }) => {
            const entry = placed[index];
            if (!entry) return null;
            const key = spanKey(entry.span);
            return (
              <Row
                key={key}
                entry={entry}
                place={[index, placed.length]}
                top={start}
                total={total}
                isSelected={key === selected}
                isFolded={words || !entry.hasChildren ? undefined : folded.has(key)}
                onSelect={() => onSelect(key)}
                onFold={() => fold(key, !folded.has(key))}
              />
            );
          })}
        </div>
      </div>
    </>
  );
}

interface RowProps {
  entry: Placed;
  place: [index: number, of: number];
  top: number;
  total: number;
  isSelected: boolean;
  /** Undefined where nothing lies below. */
  isFolded: boolean | undefined;
  onSelect: () => void;
  onFold: () => void;
}

function Row({ entry: { span, depth }, place: [index, of], top, total, isSelected, isFolded, onSelect, onFold }: RowProps) {
  const end = Math.max(span.end ?? span.start, span.start);
  const bar = { left: `${(TRACK * span.start) / total}%`, width: `${(TRACK * (end - span.start)) / total}%` };
  return (
    <div
      id={`span-${spanKey(span)}`}
      role="treeitem"
      aria-level={depth + 1}
      aria-posinset={index + 1}
      aria-setsize={of}
      aria-selected={isSelected}
      aria-expanded={isFolded === undefined ? undefined : !isFolded}
      className={styles["span"]}
      style={{ transform: `translateY(${top}px)` }}
      onClick={onSelect}
    >
      <span className={styles["name"]} style={{ paddingLeft: Math.min(depth, 20) * 16 }}>
        <span
          className={styles["fold"]}
          aria-hidden="true"
          onClick={(event) => {
            if (isFolded === undefined) return;
            event.stopPropagation();
            onFold();
          }}
        >
          {isFolded === undefined ? "" : isFolded ? "▸" : "▾"}
        </span>
        {span.kind && <span className={styles["kind"]}>{span.kind}</span>}
        <span className={styles["title"]}>{span.name}</span>
        {span.error !== null && <span className={styles["error"]}>{span.error || "failed"}</span>}
      </span>
      <span className={styles["track"]}>
        <span className={classes(styles["bar"], styles[span.error !== null ? "failed" : (span.kind ?? "")])} style={bar} />
      </span>
      <span className={styles["time"]}>{span.end === null ? "–" : duration((span.end - span.start) / 1e6)}</span>
    </div>
  );
}
