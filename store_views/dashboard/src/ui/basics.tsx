/** Small parts that every page uses. */

import { type ReactNode, useEffect, useState } from "react";
import { Button as AriaButton, type ButtonProps } from "react-aria-components/Button";

import { ApiError } from "../api/request";
import { ago, exactTime } from "../format";
import styles from "./ui.module.css";

export function classes(...names: (string | false | undefined)[]): string {
  return names.filter(Boolean).join(" ");
}

interface PanelProps {
  title: string;
  note?: ReactNode;
  children: ReactNode;
  /** True where the content reaches the panel's edges, as tables do. */
  flush?: boolean;
}

export function Panel({ title, note, children, flush }: PanelProps) {
  return (
    <section className={styles["panel"]} aria-label={title}>
      <div className={styles["panelHead"]}>
        <h2>{title}</h2>
        {note !== undefined && <div className={styles["panelNote"]}>{note}</div>}
      </div>
      <div className={flush ? styles["flush"] : styles["panelBody"]}>{children}</div>
    </section>
  );
}

const TONES: Record<string, string> = {
  succeeded: "good",
  trained: "good",
  updated: "good",
  triplet: "good",
  ok: "good",
  failed: "bad",
  error: "bad",
  dropped: "bad",
  timeout: "bad",
  discarded: "bad",
  unaccounted: "bad",
  unresponsive: "warn",
  cancelled: "warn",
  requeuing: "warn",
  unchanged: "warn",
  running: "busy",
  preparing: "busy",
  pending: "busy",
  busy: "busy",
  finished: "good",
  lost: "bad",
  stopped: "warn",
};

export function Status({ value, tone }: { value: string; tone?: string }) {
  return <span className={classes(styles["pill"], styles[tone ?? TONES[value] ?? ""])}>{value}</span>;
}

export function Button({ primary, ...props }: ButtonProps & { primary?: boolean }) {
  return <AriaButton {...props} className={classes(styles["button"], primary && styles["primary"])} />;
}

export function Message({ title, children, bad, warn }: { title: string; children?: ReactNode; bad?: boolean; warn?: boolean }) {
  return (
    <div className={classes(styles["message"], bad && styles["messageBad"], warn && styles["messageWarn"])} role={bad ? "alert" : "status"}>
      <strong>{title}</strong>
      {children}
    </div>
  );
}

export function ErrorMessage({ error }: { error: Error }) {
  const next = error instanceof ApiError ? error.nextStep : "";
  return (
    <Message bad title={error.message}>
      {next && (
        <span>
          <Prose>{next}</Prose>
        </span>
      )}
    </Message>
  );
}

/** A sentence of the view's: what stands between back-ticks is code. */
export function Prose({ children }: { children: string }) {
  return children.split("`").map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : part));
}

interface Loaded<Data> {
  data: Data | undefined;
  error: Error | null;
}

/** What a query brought, or a sentence about why there is nothing yet. Data that was there stays while asking fails. */
export function Show<Data>({ query, children }: { query: Loaded<Data>; children: (data: Data) => ReactNode }) {
  return (
    <>
      {query.error && <ErrorMessage error={query.error} />}
      {query.data !== undefined ? children(query.data) : !query.error && <p className={styles["muted"]}>Asking the view …</p>}
    </>
  );
}

/** How long ago, kept current, with the exact time on hover and for screen readers. */
export function Ago({ nanos }: { nanos: string | null | undefined }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = window.setInterval(() => setNow(Date.now()), 5_000);
    return () => window.clearInterval(timer);
  }, []);
  if (!nanos) return <>–</>;
  return <time title={exactTime(nanos)}>{ago(nanos, now)}</time>;
}

export function Text({ children }: { children: string }) {
  const [whole, setWhole] = useState(false);
  const shown = whole || children.length <= TEXT_CHARACTERS ? children : children.slice(0, TEXT_CHARACTERS);
  return (
    <>
      <pre className={styles["text"]} tabIndex={0}>
        {shown}
      </pre>
      {shown.length < children.length && <Button onPress={() => setWhole(true)}>Show all {children.length.toLocaleString("en-US")} characters</Button>}
    </>
  );
}

/** Enough to read, and quick to lay out; the rest comes when asked for. */
const TEXT_CHARACTERS = 20_000;

export function Facts({ facts }: { facts: readonly (readonly [string, ReactNode])[] }) {
  return (
    <dl className={styles["facts"]}>
      {facts.map(([name, value]) => (
        <div key={name} style={{ display: "contents" }}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** A small curve without axes, for lists. */
export function Spark({ values, label }: { values: readonly (number | null)[]; label: string }) {
  const known = values.flatMap((value, index) => (value === null ? [] : [{ value, index }]));
  if (known.length < 2) return null;
  const low = Math.min(...known.map((point) => point.value));
  const high = Math.max(...known.map((point) => point.value));
  const points = known.map(({ value, index }) => {
    const x = (100 * index) / (values.length - 1);
    const y = high === low ? 18 : 33 - (30 * (value - low)) / (high - low);
    return `${x.toFixed(2)},${y.toFixed(2)}`;
  });
  return (
    <svg className={styles["spark"]} viewBox="0 0 100 36" preserveAspectRatio="none" role="img" aria-label={label}>
      <polyline points={points.join(" ")} fill="none" stroke="var(--series-1)" strokeWidth="1.6" vectorEffect="non-scaling-stroke" />
    </svg>
  );
}

/** Counts beside each other as bars without axes. */
export function Bars({ values, label }: { values: readonly number[]; label: string }) {
  const high = Math.max(1, ...values);
  const width = 100 / Math.max(1, values.length);
  return (
    <svg className={classes(styles["spark"], styles["bars"])} viewBox="0 0 100 36" preserveAspectRatio="none" role="img" aria-label={label}>
      <line x1="0" x2="100" y1="36" y2="36" stroke="var(--line-strong)" vectorEffect="non-scaling-stroke" />
      {values.map((value, index) =>
        value > 0 ? (
          <rect key={index} x={index * width} width={width * 0.8} y={36 - (34 * value) / high} height={(34 * value) / high} fill="var(--bad)" />
        ) : null,
      )}
    </svg>
  );
}
