-- Every LLM call that is training data (prompt, response, reward), of the latest revision of each trajectory.
-- Columns of `triplets_raw` and `trajectories`, and:
--   prompt_token_count: length of the prompt in tokens.
--   response_token_count: length of the response in tokens.
SELECT
    triplet.* EXCLUDE (item_index),
    len(triplet.prompt_token_ids) AS prompt_token_count,
    len(triplet.response_token_ids) AS response_token_count,
    trajectory.run_id, trajectory.mode, trajectory.group_id, trajectory.final, trajectory.source_partition
FROM triplets_raw AS triplet
JOIN (
    SELECT log_partition, log_offset, rollout_id, run_id, mode, group_id, final, source_partition FROM trajectories_latest
) AS trajectory USING (log_partition, log_offset, rollout_id)
