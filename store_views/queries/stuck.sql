-- Rollouts that have not ended and gave no sign of life for a while, the quietest first. `status` is the rollout's,
-- `attempt_count` counts its attempts, `worker_id` is the Runner of the last one (empty: none took it). `last_sign_at`
-- is the last heartbeat, else the last change, and `quiet_seconds` the time since then.
-- $run: only this run.
-- $seconds = 60: how long they have been quiet at least.
-- $limit = 100: how many rows.
SELECT
    rollout_id, run_id, status, attempt_count,
    attempts[-1].worker_id AS worker_id,
    make_timestamp(coalesce(attempts[-1].last_heartbeat_unix_nano, updated_unix_nano) // 1000) AS last_sign_at,
    epoch(now()) - coalesce(attempts[-1].last_heartbeat_unix_nano, updated_unix_nano) / 1e9 AS quiet_seconds
FROM rollouts
WHERE ended_unix_nano IS NULL
    AND ($run::VARCHAR IS NULL OR run_id = $run)
    AND epoch(now()) - coalesce(attempts[-1].last_heartbeat_unix_nano, updated_unix_nano) / 1e9 >= $seconds
ORDER BY quiet_seconds DESC, rollout_id
LIMIT $limit
