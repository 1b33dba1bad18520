/** What will not change any more, so that a page need not ask for it again. */

const OVER = new Set(["succeeded", "failed", "cancelled"]);
const MAY_STILL_TRAIN = new Set(["not_assembled", "group_incomplete", "not_consumed"]);

/** Of a rollout: its status, and why it was not trained on, if it was not. */
export function isSettled(status: string, reason: string): boolean {
  return OVER.has(status) && !MAY_STILL_TRAIN.has(reason);
}

interface Member {
  status: string;
  group_size: number | null;
  step: number | null;
  reason_code: string | null;
}

/** Of a group: all of its rollouts are here, and each was trained on, or never will be. */
export function isGroupSettled(members: readonly Member[]): boolean {
  const size = Math.max(1, ...members.map((member) => member.group_size ?? 1));
  return (
    members.length >= size && members.every(({ status, step, reason_code: reason }) => (step !== null || reason !== null) && isSettled(status, reason ?? ""))
  );
}
