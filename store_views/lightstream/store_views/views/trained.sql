-- Every trajectory that a training step consumed; one that was consumed twice shows as two rows.
SELECT
    consumed.rollout_id, consumed.attempt_id, consumed.revision, consumed.group_id, consumed.triplet_count,
    consumed.trainer_id, consumed.run_id, consumed.step, trajectory.reward, trajectory.status,
    consumed.log_partition, consumed.log_offset
FROM consumed_raw AS consumed
LEFT JOIN (SELECT rollout_id, attempt_id, reward, status FROM trajectories) AS trajectory
    USING (rollout_id, attempt_id)
