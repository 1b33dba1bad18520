-- Every run: what it is doing (as in `run_states`; NULL: nobody trains it), what became of its rollouts, its trainers, last
-- step and rewards, the one that changed last first.
-- $run: only this run.
-- $limit = 200: how many rows.
WITH of_run AS (
    SELECT
        run_id, count(*) AS rollouts,
        count(*) FILTER (status IN ('succeeded', 'failed', 'cancelled')) AS finished,
        count(*) FILTER (status IN ('queuing', 'requeuing')) AS waiting,
        count(*) FILTER (status IN ('preparing', 'running')) AS running,
        count(*) FILTER (status = 'succeeded') AS succeeded,
        count(*) FILTER (status = 'failed') AS failed,
        count(*) FILTER (status = 'cancelled') AS cancelled,
        min(enqueued_unix_nano)::VARCHAR AS first_unix_nano, max(updated_unix_nano)::VARCHAR AS last_unix_nano
    FROM rollouts
    GROUP BY run_id
),
-- By the log's time: a Runner's clock may be wrong.
changed AS (
    SELECT run_id, max(logged_unix_nano) AS changed_unix_nano
    FROM rollout_states
    WHERE verdict_outcome = 'applied'
    GROUP BY run_id
),
trained AS (
    SELECT
        run_id, string_agg(DISTINCT trainer_id, ', ' ORDER BY trainer_id) AS trainers, max(step) AS step,
        arg_max(steps_planned, log_offset) AS steps_planned,
        arg_max(metrics['reward/mean'], step) AS reward, list(metrics['reward/mean'] ORDER BY step) AS rewards
    FROM training_steps_raw
    WHERE outcome <> 'measured'
    GROUP BY run_id
)
SELECT * EXCLUDE (changed_unix_nano), changed_unix_nano::VARCHAR AS changed_unix_nano
FROM of_run
LEFT JOIN changed USING (run_id)
FULL JOIN trained USING (run_id)
FULL JOIN (
    SELECT run_id, state, error, heartbeat_unix_nano::VARCHAR AS said_unix_nano FROM run_states
) AS said USING (run_id)
WHERE $run::VARCHAR IS NULL OR run_id = $run
ORDER BY greatest(changed.changed_unix_nano, said.said_unix_nano::BIGINT) DESC NULLS LAST, run_id
LIMIT $limit
