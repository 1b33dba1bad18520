-- What the assembler dropped, of the latest revision of each trajectory. See `dropped` for all drops.
-- Columns of `drops_raw` and `trajectories`.
SELECT
    dropped.* EXCLUDE (item_index),
    trajectory.run_id, trajectory.mode, trajectory.group_id, trajectory.final, trajectory.source_partition
FROM drops_raw AS dropped
JOIN (
    SELECT log_partition, log_offset, rollout_id, run_id, mode, group_id, final, source_partition FROM trajectories_latest
) AS trajectory USING (log_partition, log_offset, rollout_id)
