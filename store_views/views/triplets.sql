-- Every LLM call that is training data (prompt, response, reward), of the latest revision of each trajectory.
-- Columns of `triplets_raw` and `trajectories`, and:
--   agent_name: agent that made the call; `agent` where nothing names one.
--   model: model that answered, whichever version of it.
--   model_version: its name as the model server gave it.
--   prompt_token_count: length of the prompt in tokens.
--   response_token_count: length of the response in tokens.
--   seconds: how long the call took, in seconds.
--   status: status of the rollout when the attempt was closed.
SELECT
    triplet.* EXCLUDE (item_index) REPLACE (
        coalesce(triplet.agent_name, 'agent') AS agent_name,
        model_family(triplet.model) AS model
    ),
    triplet.model AS model_version,
    len(triplet.prompt_token_ids) AS prompt_token_count,
    len(triplet.response_token_ids) AS response_token_count,
    (triplet.end_unix_nano - triplet.start_unix_nano) / 1e9 AS seconds,
    trajectory.run_id, trajectory.mode, trajectory.group_id, trajectory.final, trajectory.rollout_status AS status,
    trajectory.error_type, trajectory.error_message, trajectory.source_partition
FROM triplets_raw AS triplet
JOIN (
    SELECT log_partition, log_offset, rollout_id, run_id, mode, group_id, final, rollout_status, error_type,
        error_message, source_partition
    FROM trajectories_latest
) AS trajectory USING (log_partition, log_offset, rollout_id)
