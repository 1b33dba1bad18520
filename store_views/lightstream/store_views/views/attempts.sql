-- Every attempt of every rollout in its current state; `final` once it is closed for good.
-- Columns of `AttemptState` and `rollouts`, and:
--   final: true for the attempt that counts for its rollout, the last that ended it; NULL until the attempt is closed.
--   seconds: seconds from begin to end; NULL while it has not ended.
SELECT
    rollout.rollout_id, attempt.attempt_id, attempt.sequence AS attempt_sequence, attempt.status, closed.final,
    attempt.worker_id, attempt.started_unix_nano, attempt.ended_unix_nano, attempt.last_heartbeat_unix_nano,
    (attempt.ended_unix_nano - attempt.started_unix_nano) / 1e9 AS seconds,
    attempt.error_type, attempt.error_message,
    rollout.run_id, rollout.mode, rollout.group_id
FROM (SELECT *, unnest(attempts) AS attempt FROM rollouts) AS rollout
LEFT JOIN (
    SELECT
        rollout_id, attempt_id,
        final AND attempt_sequence = max(attempt_sequence) FILTER (final) OVER (PARTITION BY rollout_id) AS final
    FROM (
        SELECT rollout_id, attempt_id, attempt_sequence, arg_min(final, log_offset) AS final
        FROM attempts_closed_raw
        GROUP BY ALL
    )
) AS closed
    ON closed.rollout_id = rollout.rollout_id AND closed.attempt_id = attempt.attempt_id
