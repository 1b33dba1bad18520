/** Lines over steps, drawn by uPlot; a step is picked by a click, or by arrow keys and Enter. */

import { type KeyboardEvent, type RefObject, useEffect, useMemo, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

import { figure } from "../format";
import { onTheme } from "../theme";
import styles from "./ui.module.css";

export interface Line {
  label: string;
  values: (number | null)[];
  /** Index of the colour `--series-N`, from 1. */
  colour: number;
  faint?: boolean;
}

interface ChartProps {
  label: string;
  x: number[];
  lines: Line[];
  height?: number;
  xLabel?: string;
  onPick?: (x: number) => void;
  /** Where a line is drawn upright. */
  marked?: number | undefined;
}

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function Chart({ label, x, lines, height = 240, xLabel = "step", onPick, marked }: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const picked = useRef(onPick);
  useEffect(() => {
    picked.current = onPick;
  });
  const data = useMemo((): uPlot.AlignedData => [x, ...lines.map((line) => line.values)], [x, lines]);
  const shape = JSON.stringify([height, xLabel, lines.map((line) => [line.label, line.colour, line.faint]), marked]);
  const latest = useRef({ data, lines });
  latest.current = { data, lines };

  // biome-ignore lint/correctness/useExhaustiveDependencies: drawn anew where its shape is another; data are set below
  useEffect(() => {
    const element = place.current;
    if (!element) return undefined;
    const draw = () => {
      plot.current?.destroy();
      const made = new uPlot(options(latest.current.lines, element.clientWidth, height, xLabel, marked), latest.current.data, element);
      plot.current = made;
      made.over.addEventListener("click", () => {
        const at = made.cursor.idx;
        const value = at === null || at === undefined ? undefined : made.data[0][at];
        if (value !== undefined) picked.current?.(value);
      });
    };
    draw();
    const resize = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height }));
    resize.observe(element);
    const stop = onTheme(draw);
    return () => {
      stop();
      resize.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape, height, xLabel]);

  useEffect(() => plot.current?.setData(data), [data]);

  if (onPick) return <Picker label={label} x={x} lines={lines} xLabel={xLabel} onPick={onPick} plot={plot} place={place} />;
  const last = lines.map((line) => `${line.label} ${figure(line.values.findLast((value) => value !== null))}`);
  return <div ref={place} className={styles["chart"]} role="img" aria-label={`${label}: ${x.length} points; last ${last.join(", ")}`} />;
}

interface PickerProps extends Required<Pick<ChartProps, "label" | "x" | "lines" | "xLabel" | "onPick">> {
  plot: RefObject<uPlot | null>;
  place: RefObject<HTMLDivElement | null>;
}

/** A chart with a cursor that the arrow keys, Home and End move along x; Enter picks where it is. */
function Picker({ label, x, lines, xLabel, onPick, plot, place }: PickerProps) {
  const [moved, setMoved] = useState<number | null>(null);
  const end = x.length - 1;
  const at = Math.min(moved ?? end, end);
  const move = (to: number) => {
    const value = x[to];
    if (value === undefined) return;
    setMoved(to);
    plot.current?.setCursor({ left: plot.current.valToPos(value, "x"), top: 0 });
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const keys: Record<string, number> = { ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1, Home: 0, End: end, Enter: at };
    const to = keys[event.key];
    if (to === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const picked = x[at];
    if (event.key !== "Enter") move(Math.min(end, Math.max(0, to)));
    else if (picked !== undefined) onPick(picked);
  };
  const values = lines.map((line) => `${line.label} ${figure(line.values[at])}`);
  const said = `${xLabel} ${figure(x[at])}: ${values.join(", ")}`;
  return (
    <div
      className={styles["picker"]}
      role="slider"
      tabIndex={0}
      aria-label={`${label}; Enter opens the ${xLabel}`}
      aria-valuemin={x[0] ?? 0}
      aria-valuemax={x[end] ?? 0}
      aria-valuenow={x[at] ?? 0}
      aria-valuetext={said}
      onKeyDown={onKeyDown}
      onFocus={(event) => event.currentTarget.matches(":focus-visible") && move(at)}
    >
      <div ref={place} className={styles["chart"]} />
      <div className={styles["pickerSaid"]} aria-hidden="true">
        {said}
      </div>
    </div>
  );
}

/** Steps and versions are whole: there is no step 1.25. */
const WHOLE = Array.from({ length: 12 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();

/** More points than these are a line. */
const MARKED_MAX = 30;

const LEGEND_FROM_PX = 200;

function drawMark(plot: uPlot, x: number): void {
  const left = Math.round(plot.valToPos(x, "x", true));
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = colour("--accent");
  ctx.setLineDash([4, 4]);
  ctx.beginPath();
  ctx.moveTo(left, bbox.top);
  ctx.lineTo(left, bbox.top + bbox.height);
  ctx.stroke();
  ctx.restore();
}

function options(lines: Line[], width: number, height: number, xLabel: string, marked: number | undefined): uPlot.Options {
  const muted = colour("--muted");
  const grid = { stroke: colour("--line"), width: 1 };
  const font = `12px ${colour("--sans")}`;
  const axis = { stroke: muted, grid, ticks: { show: false }, font };
  return {
    width: Math.max(width, 120),
    height,
    scales: { x: { time: false } },
    cursor: { points: { size: 7 }, drag: { x: false, y: false }, sync: { key: xLabel } }, // one crosshair for all charts
    hooks: { draw: marked === undefined ? [] : [(plot) => drawMark(plot, marked)] },
    legend: { live: true, show: height > LEGEND_FROM_PX }, // the small ones have the colours of the large one
    axes: [
      { ...axis, grid: { show: false }, space: 60, size: 28, incrs: WHOLE },
      { ...axis, size: 54, values: (_plot, ticks) => ticks.map((tick) => figure(tick)) },
    ],
    series: [
      { label: xLabel },
      ...lines.map(
        (line): uPlot.Series => ({
          label: line.label,
          stroke: colour(`--series-${line.colour}`) + (line.faint ? "55" : ""),
          width: line.faint ? 1 : 2,
          // By what there is when it is drawn: a chart is often made before its data has come.
          points: { show: (plot) => plot.data[0].length <= MARKED_MAX, fill: colour("--surface") },
          spanGaps: true,
          value: (_plot, value) => (value === null ? "–" : figure(value)),
        }),
      ),
    ],
  };
}
