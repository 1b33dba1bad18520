/** The measures of a training beside their normal ranges. */

import { Link } from "@tanstack/react-router";

import { Panel, Spark, Status } from "../ui/basics";
import ui from "../ui/ui.module.css";
import type { Measure } from "./health";
import styles from "./pages.module.css";

const TONES = { normal: "good", watch: "warn", alarm: "bad" };

export function HealthCard({ run, measures }: { run: string; measures: readonly Measure[] }) {
  if (measures.length === 0) return null;
  const troubled = measures.filter((one) => one.state !== "normal").length;
  return (
    <Panel title="Health" note={troubled === 0 ? "all within their normal ranges" : `${troubled} outside of the normal range`}>
      <ul className={styles["health"]}>
        {measures.map((one) => (
          <li key={one.name} aria-label={one.name}>
            <div className={styles["healthHead"]}>
              {one.metric ? (
                <Link to="/training" search={{ run, metric: one.metric }}>
                  {one.name}
                </Link>
              ) : (
                <span>{one.name}</span>
              )}
              {one.state !== "normal" && <Status value={one.state} tone={TONES[one.state]} />}
            </div>
            <div className={styles["healthValue"]}>{one.value}</div>
            <Spark values={one.curve} label={`${one.name} by step`} />
            <div className={ui["muted"]}>{one.normal}</div>
          </li>
        ))}
      </ul>
    </Panel>
  );
}
