-- The last answer that a rollout's model gave, with the reward of its trajectory.
-- $rollout: the rollout.
SELECT rollout.rollout_id, rollout.run_id, rollout.status, rollout.mode, rollout.input_json, made.reward, called.response_json
FROM (SELECT * FROM rollouts WHERE rollout_id = $rollout) AS rollout
LEFT JOIN (
    SELECT rollout_id, any_value(reward) AS reward FROM trajectories_latest WHERE final AND rollout_id = $rollout GROUP BY ALL
) AS made USING (rollout_id)
LEFT JOIN (
    SELECT rollout_id, llm_response_json AS response_json FROM spans_raw
    WHERE rollout_id = $rollout AND llm_choice_index IS NOT NULL
    ORDER BY start_unix_nano DESC, log_offset DESC LIMIT 1
) AS called USING (rollout_id)
