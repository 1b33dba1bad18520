-- Every trajectory that a training step consumed, whether or not it was learned from; one that was consumed twice shows
-- as two rows. Where `latest_revision` is above `revision`, late spans or rewards came after that and did not count.
-- Columns of `consumed_raw` and `trajectories`, and:
--   status: status that the attempt ended in.
--   latest_revision: newest revision of the trajectory there is.
SELECT
    consumed.rollout_id, consumed.attempt_id, consumed.revision, consumed.group_id,
    consumed.triplet_count, consumed.not_trained,
    consumed.trainer_id, consumed.run_id, consumed.step, consumed.outcome, trajectory.reward, trajectory.status,
    trajectory.rollout_status, trajectory.mode, trajectory.agent_name, trajectory.model,
    trajectory.revision AS latest_revision,
    consumed.log_partition, consumed.log_offset
FROM consumed_raw AS consumed
LEFT JOIN (
    SELECT rollout_id, attempt_id, reward, status, rollout_status, mode, agent_name, model, revision
    FROM trajectories_latest
) AS trajectory
    USING (rollout_id, attempt_id)
