-- The rollouts of one task, of every run and policy version: the last enqueued, by run and version, the best first.
-- $task: the hash (MD5) of its input.
-- $limit = 200: how many rows.
WITH same AS (
    SELECT rollout_id, run_id, mode, status, coalesce(group_id, rollout_id) AS group_id, seconds, enqueued_unix_nano
    FROM rollouts WHERE md5(input_json) = $task
    ORDER BY enqueued_unix_nano DESC, rollout_id LIMIT $limit
)
SELECT same.* REPLACE (same.enqueued_unix_nano::VARCHAR AS enqueued_unix_nano), made.reward, called.policy_version, used.step
FROM same
LEFT JOIN (
    SELECT rollout_id, any_value(reward) AS reward FROM trajectories_latest
    WHERE final AND rollout_id IN (SELECT rollout_id FROM same) GROUP BY rollout_id
) AS made USING (rollout_id)
LEFT JOIN (
    SELECT rollout_id, max(llm_policy_version) AS policy_version FROM spans_raw
    WHERE rollout_id IN (SELECT rollout_id FROM same) GROUP BY rollout_id
) AS called USING (rollout_id)
LEFT JOIN (
    SELECT rollout_id, max(step) AS step FROM consumed_raw
    WHERE triplet_count > 0 AND outcome = 'updated' AND rollout_id IN (SELECT rollout_id FROM same) GROUP BY rollout_id
) AS used USING (rollout_id)
ORDER BY run_id, policy_version, reward DESC NULLS LAST, rollout_id
