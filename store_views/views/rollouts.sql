-- Every rollout in its current state.
-- Columns of `rollouts_latest`, and:
--   seconds: seconds from enqueued to ended; NULL while it has not ended.
SELECT
    rollout_id, run_id, mode, status, group_id, group_size, resources_id, input_json, metadata_json,
    attempt_count,
    timeout_seconds, unresponsive_seconds, max_attempts, retry_condition, priority,
    credit, reward_match, trained_agents,
    enqueued_unix_nano, updated_unix_nano, ended_unix_nano,
    (ended_unix_nano - enqueued_unix_nano) / 1e9 AS seconds,
    attempts, source_offset, log_partition, log_offset
FROM rollouts_latest
