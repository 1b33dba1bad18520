-- The rollouts of a group beside each other: reward, step, reason, and last answer.
-- $group: the group.
-- $run: only this run.
WITH member AS (
  SELECT rollout_id, run_id, status, mode, group_size, input_json, seconds
  FROM rollouts WHERE coalesce(group_id, rollout_id) = $group AND ($run::VARCHAR IS NULL OR run_id = $run)
  ORDER BY enqueued_unix_nano, rollout_id LIMIT 256
), made AS (
  SELECT rollout_id, any_value(reward) AS reward, any_value(call_count) AS call_count,
    any_value(error_type) AS error_type, any_value(error_message) AS error_message
  FROM trajectories_latest WHERE final AND rollout_id IN (SELECT rollout_id FROM member) GROUP BY rollout_id
), used AS (
  SELECT rollout_id, max(step) AS step FROM consumed_raw
  WHERE triplet_count > 0 AND outcome = 'updated' AND rollout_id IN (SELECT rollout_id FROM member) GROUP BY rollout_id
), why AS (
  SELECT rollout_id, reason_code, reason FROM why_not_trained WHERE group_key = $group
), last_call AS (
  SELECT rollout_id, llm_response_json AS response_json, len(llm_response_token_ids) AS response_tokens,
    llm_policy_version AS policy_version
  FROM spans_raw
  WHERE llm_choice_index IS NOT NULL AND rollout_id IN (SELECT rollout_id FROM member)
  QUALIFY row_number() OVER (PARTITION BY rollout_id ORDER BY start_unix_nano DESC, log_offset DESC) = 1
)
FROM member LEFT JOIN made USING (rollout_id) LEFT JOIN used USING (rollout_id) LEFT JOIN why USING (rollout_id)
LEFT JOIN last_call USING (rollout_id)
ORDER BY rollout_id
