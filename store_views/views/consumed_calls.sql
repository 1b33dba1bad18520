-- Every LLM call of each trajectory that a training step consumed, in the revision that it consumed, and how old the
-- policy was that sampled it.
-- Columns of `consumed_raw` and `triplets_raw`, and:
--   agent_name: agent that made the call; `agent` where nothing names one.
--   model: model that answered, whichever version of it.
--   mode: purpose of the rollout.
--   status: status of the rollout when the attempt was closed.
--   seconds: how long the call took, in seconds.
--   step_policy_version: version of the policy that the step started from; NULL where its resources are unknown.
--   staleness: by how many versions the policy that sampled the call was older than that; 0: the same.
--   log_partition: partition of the topic `training-steps` that the step lies in.
--   log_offset: offset of the step in that partition.
SELECT
    consumed.rollout_id, consumed.attempt_id, consumed.revision, consumed.group_id,
    consumed.trainer_id, consumed.run_id, consumed.step, consumed.outcome,
    triplet.call_index, triplet.span_id, triplet.response_id, triplet.choice_index,
    coalesce(triplet.agent_name, 'agent') AS agent_name, model_family(triplet.model) AS model,
    trajectory.mode, trajectory.rollout_status AS status, triplet.seconds,
    triplet.reward, triplet.policy_version, step.policy_version AS step_policy_version,
    step.policy_version - triplet.policy_version AS staleness,
    consumed.log_partition, consumed.log_offset
FROM consumed_raw AS consumed
JOIN (SELECT log_partition, log_offset, policy_version FROM training_steps) AS step USING (log_partition, log_offset)
JOIN (
    SELECT rollout_id, attempt_id, revision, call_index, span_id, response_id, choice_index, agent_name, model, reward,
        policy_version, (end_unix_nano - start_unix_nano) / 1e9 AS seconds
    FROM triplets_raw
    QUALIFY row_number() OVER (PARTITION BY rollout_id, attempt_id, revision, call_index ORDER BY log_offset) = 1
) AS triplet USING (rollout_id, attempt_id, revision)
LEFT JOIN (SELECT rollout_id, attempt_id, mode, rollout_status FROM trajectories_latest) AS trajectory
    ON trajectory.rollout_id = consumed.rollout_id AND trajectory.attempt_id = consumed.attempt_id
