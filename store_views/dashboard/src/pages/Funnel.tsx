/** Where the work of a run goes: each stage with its count, and what was lost on the way, with the reason. */

import { Link } from "@tanstack/react-router";

import type { CountByReason, NotTrainedReason, RunFigures, TrainedCount } from "../api/runs";
import { count, plural } from "../format";
import ui from "../ui/ui.module.css";
import styles from "./pages.module.css";

interface FunnelProps {
  run: string;
  figures: RunFigures;
  calls: CountByReason[] | undefined;
  trained: TrainedCount | undefined;
  notTrained: NotTrainedReason[] | undefined;
}

interface Stage {
  name: string;
  count: number | undefined;
  /** What the bar is a share of. */
  of: number | undefined;
  losses: { text: string; reason?: string; status?: string }[];
}

export function Funnel({ run, figures, calls, trained, notTrained }: FunnelProps) {
  const stages = stagesOf(figures, calls, trained, notTrained);
  return (
    <>
      <p className={ui["muted"]}>
        {plural(figures.tasks, "task")}, {plural(figures.attempts, "attempt")}
        {figures.retried > 0 && `; ${plural(figures.retried, "rollout")} tried more than once`}
      </p>
      <ol className={styles["funnel"]}>
        {stages.map((stage) => (
          <li key={stage.name}>
            <div className={styles["stage"]}>
              <span>{stage.name}</span>
              <span className={styles["stageBar"]} aria-hidden="true">
                <span className={styles["stageFill"]} style={{ width: `${share(stage)}%` }} />
              </span>
              <span className={styles["stageCount"]}>{stage.count === undefined ? "…" : count(stage.count)}</span>
              {stage.losses.length > 0 && (
                <span className={styles["loss"]}>
                  {stage.losses.map((loss) =>
                    loss.reason || loss.status ? (
                      <Link
                        key={loss.text}
                        to="/rollouts"
                        search={{
                          run,
                          ...(loss.reason ? { reason: loss.reason } : {}),
                          ...(loss.status ? { status: loss.status } : {}),
                        }}
                      >
                        {loss.text}
                      </Link>
                    ) : (
                      <span key={loss.text}>{loss.text}</span>
                    ),
                  )}
                </span>
              )}
            </div>
          </li>
        ))}
      </ol>
    </>
  );
}

function share(stage: Stage): number {
  if (stage.count === undefined || !stage.of) return 0;
  return Math.min(100, (100 * stage.count) / stage.of);
}

function stagesOf(
  figures: RunFigures,
  calls: CountByReason[] | undefined,
  trained: TrainedCount | undefined,
  notTrained: NotTrainedReason[] | undefined,
): Stage[] {
  const made = calls?.reduce((total, row) => total + row.count, 0);
  const triplets = calls?.reduce((total, row) => total + (row.fate === "triplet" ? row.count : 0), 0);
  const finished = figures.succeeded + figures.failed + figures.cancelled;
  const states = [
    { text: `${count(figures.waiting)} waiting`, status: "queuing", count: figures.waiting },
    { text: `${count(figures.running)} running`, status: "running", count: figures.running },
  ];
  const ends = [
    { text: `${count(figures.failed)} failed`, status: "failed", count: figures.failed },
    { text: `${count(figures.cancelled)} cancelled`, status: "cancelled", count: figures.cancelled },
  ];
  return [
    { name: "Rollouts", count: figures.rollouts, of: figures.rollouts, losses: states.filter((loss) => loss.count > 0) },
    { name: "Finished rollouts", count: finished, of: figures.rollouts, losses: ends.filter((loss) => loss.count > 0) },
    { name: "With a reward", count: figures.rewarded, of: figures.rollouts, losses: [] },
    {
      name: "Trained rollouts",
      count: trained?.rollouts,
      of: figures.rollouts,
      losses: (notTrained ?? []).slice(0, 6).map((row) => ({ text: `${count(row.count)} ${row.reason_code}`, reason: row.reason_code })),
    },
    { name: "LLM calls", count: made, of: made, losses: [] },
    {
      name: "Calls with tokens",
      count: triplets,
      of: made,
      losses: (calls ?? [])
        .filter((row) => row.fate !== "triplet")
        .map((row) => ({ text: `${count(row.count)} ${row.fate}${row.reason ? `: ${row.reason}` : ""}` })),
    },
  ];
}
