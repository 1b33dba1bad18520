-- Every reward of the latest revision of each trajectory, and what it was matched to.
-- Columns of `rewards_raw` and `trajectories`, and:
--   agent_name: agent that made the call it was matched to; of others, the agents of the trajectory.
--   model: model that answered that call; of others, the models of the trajectory.
--   status: status of the rollout when the attempt was closed.
SELECT
    reward.* EXCLUDE (item_index),
    coalesce(call.agent_name, trajectory.agent_name) AS agent_name,
    coalesce(nullif(model_family(call.model), ''), trajectory.model) AS model,
    trajectory.run_id, trajectory.mode, trajectory.group_id, trajectory.final, trajectory.rollout_status AS status,
    trajectory.source_partition
FROM rewards_raw AS reward
JOIN (
    SELECT log_partition, log_offset, rollout_id, run_id, mode, group_id, final, rollout_status, agent_name, model,
        source_partition
    FROM trajectories_latest
) AS trajectory USING (log_partition, log_offset, rollout_id)
LEFT JOIN (
    SELECT log_partition, log_offset, rollout_id, call_index, agent_name, model FROM triplets_raw
    UNION ALL
    SELECT log_partition, log_offset, rollout_id, call_index, agent_name, model FROM drops_raw WHERE call_index >= 0
) AS call USING (log_partition, log_offset, rollout_id, call_index)
