-- Every attempt of every rollout in its current state; `final` once it is closed for good.
-- Columns of `AttemptState` and `rollouts`, and:
--   final: true for the attempt that counts for its rollout, the last that ended it; NULL until the attempt is closed.
--   seconds: seconds from begin to end; NULL while it has not ended.
--   rollout_status: status of the rollout now.
--   agent_name: agent that made its LLM calls, or several (`planner, writer`); NULL until it is assembled.
--   model: model that answered them, whichever version of it, or several; NULL until it is assembled.
--   reward: reward of its trajectory.
SELECT
    rollout.rollout_id, attempt.attempt_id, attempt.sequence AS attempt_sequence, attempt.status, closed.final,
    attempt.worker_id, attempt.started_unix_nano, attempt.ended_unix_nano, attempt.last_heartbeat_unix_nano,
    (attempt.ended_unix_nano - attempt.started_unix_nano) / 1e9 AS seconds,
    attempt.error_type, attempt.error_message,
    rollout.run_id, rollout.mode, rollout.group_id, rollout.status AS rollout_status,
    made.agent_name, made.model, made.reward
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
LEFT JOIN (SELECT rollout_id, attempt_id, agent_name, model, reward FROM trajectories_latest) AS made
    ON made.rollout_id = rollout.rollout_id AND made.attempt_id = attempt.attempt_id
