/** The rollouts of a task that may stand beside each other. */

import type { TaskRow, TriedRow } from "../api/agent";
import type { Candidate } from "./Beside";

/** The best and the worst of each run and policy version, however old, then the last ones. */
export function candidatesOf(tries: readonly TriedRow[], lately: readonly TaskRow[]): Candidate[] {
  const found = new Map<string, Candidate>();
  for (const { run_id, policy_version, best, worst, high, low } of tries)
    for (const [rollout_id, reward] of [[best, high] as const, [worst, low] as const])
      if (rollout_id !== null && !found.has(rollout_id)) found.set(rollout_id, { rollout_id, run_id, policy_version, reward });
  for (const row of lately) if (!found.has(row.rollout_id)) found.set(row.rollout_id, row);
  return [...found.values()];
}
