-- Every reward of the latest revision of each trajectory, and what it was matched to.
-- Columns of `rewards_raw` and `trajectories`.
SELECT reward.* EXCLUDE (item_index), trajectory.run_id, trajectory.mode, trajectory.group_id, trajectory.final,
    trajectory.source_partition
FROM rewards_raw AS reward
JOIN (
    SELECT log_partition, log_offset, rollout_id, run_id, mode, group_id, final, source_partition FROM trajectories_latest
) AS trajectory USING (log_partition, log_offset, rollout_id)
