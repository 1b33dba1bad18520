-- Every run, by mode: its rollouts, rewards, calls and tokens. Read from sums that are kept with the rows, so it is as
-- quick when a run is long.
-- Columns:
--   run_id: the run; empty for rollouts without one.
--   mode: the rollouts' mode.
--   rollouts: how many were enqueued.
--   waiting: those that wait for a Runner.
--   running: those that an agent works at.
--   succeeded, failed, cancelled: those that ended so.
--   attempts: how many attempts they had.
--   trajectories: how many ended in a final trajectory.
--   rewarded: how many of these have a finite reward.
--   reward_mean: the mean of these rewards.
--   calls: LLM calls of all assembled attempts.
--   triplets: those of them that are training data.
--   prompt_tokens, response_tokens: tokens of these.
WITH rollouts AS (
    SELECT
        run_id, mode, sum(rollouts) AS rollouts, sum(attempts) AS attempts,
        coalesce(sum(rollouts) FILTER (status IN ('queuing', 'requeuing')), 0) AS waiting,
        coalesce(sum(rollouts) FILTER (status IN ('preparing', 'running')), 0) AS running,
        coalesce(sum(rollouts) FILTER (status = 'succeeded'), 0) AS succeeded,
        coalesce(sum(rollouts) FILTER (status = 'failed'), 0) AS failed,
        coalesce(sum(rollouts) FILTER (status = 'cancelled'), 0) AS cancelled
    FROM run_rollouts
    GROUP BY ALL
),
calls AS (
    SELECT
        run_id, mode, sum(calls) AS calls, coalesce(sum(calls) FILTER (fate = 'triplet'), 0) AS triplets,
        sum(prompt_tokens) AS prompt_tokens, sum(response_tokens) AS response_tokens
    FROM run_calls
    GROUP BY ALL
),
rewards AS (
    SELECT run_id, mode, sum(trajectories) AS trajectories, sum(rewarded) AS rewarded, sum(reward_sum) AS reward_sum
    FROM run_rewards
    GROUP BY ALL
)
SELECT
    run_id, mode,
    coalesce(rollouts, 0)::BIGINT AS rollouts, coalesce(waiting, 0)::BIGINT AS waiting,
    coalesce(running, 0)::BIGINT AS running, coalesce(succeeded, 0)::BIGINT AS succeeded,
    coalesce(failed, 0)::BIGINT AS failed, coalesce(cancelled, 0)::BIGINT AS cancelled,
    coalesce(attempts, 0)::BIGINT AS attempts,
    coalesce(trajectories, 0)::BIGINT AS trajectories, coalesce(rewarded, 0)::BIGINT AS rewarded,
    CASE WHEN rewarded > 0 THEN reward_sum / rewarded END AS reward_mean,
    coalesce(calls, 0)::BIGINT AS calls, coalesce(triplets, 0)::BIGINT AS triplets,
    coalesce(prompt_tokens, 0)::BIGINT AS prompt_tokens, coalesce(response_tokens, 0)::BIGINT AS response_tokens
FROM rollouts
FULL JOIN calls USING (run_id, mode)
FULL JOIN rewards USING (run_id, mode)
WHERE coalesce(rollouts, 0) > 0 OR coalesce(calls, 0) > 0 OR coalesce(trajectories, 0) > 0
