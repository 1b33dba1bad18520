-- Every LLM call once: its rollout, its agent and model, its tokens, time and error, and its fate: triplet, dropped (with
-- the reason) or pending. Agents that send spans by OpenTelemetry are here as those behind the proxy.
-- Columns of `recorded_calls` and `rollouts`, and:
--   status: status of the rollout now.
--   agent_name: agent that made the call; `agent` where nothing names one.
--   model: model that answered, else that was asked, whichever version of it.
--   model_version: its name with the version.
--   reward: reward of the call: what credit assignment gave it, and of a call that is no training data what was given
--     to it alone.
SELECT
    call.rollout_id, call.attempt_id, rollout.run_id, rollout.mode, rollout.status, rollout.group_id,
    coalesce(call.agent_name, 'agent') AS agent_name,
    model_family(coalesce(call.response_model, call.requested_model)) AS model,
    coalesce(call.response_model, call.requested_model) AS model_version,
    coalesce(call.reward, given.reward) AS reward,
    call.* EXCLUDE (rollout_id, attempt_id, agent_name, reward)
FROM recorded_calls AS call
LEFT JOIN (SELECT rollout_id, run_id, mode, status, group_id FROM rollouts_latest) AS rollout
    ON rollout.rollout_id = call.rollout_id
LEFT JOIN (
    SELECT rollout_id, attempt_id, call_index, arg_max(value, source_offset) AS reward
    FROM rewards_raw
    SEMI JOIN trajectories_latest USING (log_partition, log_offset, rollout_id)
    WHERE dimension = 0 AND call_index >= 0 AND NOT starts_with(name, 'automatic.')
    GROUP BY ALL
) AS given
    ON given.rollout_id = call.rollout_id AND given.attempt_id = call.attempt_id AND given.call_index = call.call_index
