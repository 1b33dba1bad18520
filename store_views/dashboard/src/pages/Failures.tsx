/** The errors of a rollout's attempts and spans, each once, before anything else. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { type Explained, type SpanRow, spansQuery } from "../api/rollouts";
import { plural } from "../format";
import { Panel } from "../ui/basics";
import { Copy } from "../ui/Copy";
import styles from "./pages.module.css";

interface Failure {
  type: string;
  text: string;
  attempts: number;
}

export function Failures({ found }: { found: Explained }) {
  const failures = failuresOf(found.attempts);
  const spans = useQuery(spansQuery(found.rollout.rollout_id)).data?.spans ?? [];
  const failed = failedSpans(spans);
  if (failures.length === 0 && failed.length === 0) return null;
  return (
    <Panel title="What went wrong">
      {failures.map(({ type, text, attempts: count }) => {
        const last = lastLine(text);
        return (
          <section key={`${type} ${text}`} className={styles["failure"]} aria-label={type || "Error"}>
            <div className={styles["failureHead"]}>
              <p>
                <strong>{type || "Error"}</strong>
                {last && <>: {last}</>}
                {count > 1 && ` (${plural(count, "attempt")})`}
              </p>
              <Copy text={text || type} label="Copy the error" />
            </div>
            {text.trim() !== last && (
              <details>
                <summary>All of it</summary>
                <pre className={styles["trace"]} tabIndex={0}>
                  {text}
                </pre>
              </details>
            )}
          </section>
        );
      })}
      {failed.length > 0 && (
        <ul className={styles["failedSpans"]} aria-label="Spans that failed">
          {failed.map(({ span, times }) => (
            <li key={`${span.log_partition} ${span.log_offset}`}>
              <Link to="/rollout" search={(known) => ({ ...known, span: span.span_id })} replace hash="spans">
                {span.kind ? `${span.kind} ${span.name}` : span.name}
              </Link>
              : {span.error || "failed"}
              {times > 1 && ` (${plural(times, "time")})`}
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

/** Spans that failed, equal ones once, the first of each. */
function failedSpans(spans: readonly SpanRow[]): { span: SpanRow; times: number }[] {
  const found = new Map<string, { span: SpanRow; times: number }>();
  for (const span of spans) {
    if (span.error === null) continue;
    const key = JSON.stringify([span.kind, span.name, span.error]);
    const known = found.get(key);
    if (known) known.times += 1;
    else found.set(key, { span, times: 1 });
  }
  return [...found.values()].slice(0, FAILED_MAX);
}

const FAILED_MAX = 20;

function failuresOf(attempts: Explained["attempts"]): Failure[] {
  const found = new Map<string, Failure>();
  for (const { error_type: type, error_message: text } of attempts) {
    if (!type && !text) continue;
    const key = JSON.stringify([type, text]);
    const known = found.get(key);
    if (known) known.attempts += 1;
    else found.set(key, { type: type ?? "", text: text ?? "", attempts: 1 });
  }
  return [...found.values()];
}

/** Of a traceback its last line, which says what happened. */
export function lastLine(text: string | null): string {
  return (text ?? "").trimEnd().split("\n").at(-1)?.trim() ?? "";
}
