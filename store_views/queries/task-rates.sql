-- Of each task of a task set: how many of its last rollouts in a run have a reward, its pass rate (rewards of at least
-- 1), and the least, mean and greatest reward. Rollouts count once a step of the run has consumed them, with the reward
-- that it consumed: later ones change nothing.
-- $run: the run.
-- $digest: the digest of the task set, as in the metadata of its rollouts.
-- $step = 1000000000: only rollouts that were consumed by this step.
-- $last = 32: how many rollouts of each task, the last first.
WITH asked AS (
    SELECT rollout_id, metadata_json->>'$.task.id' AS task
    FROM rollouts WHERE run_id = $run AND metadata_json->>'$.task.digest' = $digest
),
used AS (
    SELECT consumed.rollout_id, arg_min(trajectory.reward, consumed.step) AS reward, min(consumed.step) AS step
    FROM consumed_raw AS consumed JOIN trajectories_raw AS trajectory USING (rollout_id, attempt_id, revision)
    WHERE consumed.run_id = $run AND consumed.step <= $step GROUP BY consumed.rollout_id
)
SELECT
    task, count(reward) AS rollouts, avg((reward >= 1)::DOUBLE) AS pass_rate,
    min(reward) AS low, avg(reward) AS mean, max(reward) AS high
FROM (
    SELECT task, reward FROM asked JOIN used USING (rollout_id)
    WHERE reward IS NOT NULL AND isfinite(reward)
    QUALIFY row_number() OVER (PARTITION BY task ORDER BY used.step DESC, rollout_id) <= $last
)
GROUP BY task
ORDER BY task
