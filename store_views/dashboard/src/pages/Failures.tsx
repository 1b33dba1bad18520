/** The errors of a rollout's attempts, each once, before anything else. */

import type { Explained } from "../api/rollouts";
import { plural } from "../format";
import { Panel } from "../ui/basics";
import { Copy } from "../ui/Copy";
import styles from "./pages.module.css";

interface Failure {
  type: string;
  text: string;
  attempts: number;
}

export function Failures({ attempts }: { attempts: Explained["attempts"] }) {
  const failures = failuresOf(attempts);
  if (failures.length === 0) return null;
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
    </Panel>
  );
}

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
