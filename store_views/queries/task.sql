-- What came of one task, by run and policy version, with the rollouts that had the highest and the lowest reward of each. The
-- first row alone has the input.
-- $task: the hash (MD5) of its input.
WITH same AS (
    SELECT rollout_id, run_id, input_json FROM rollouts WHERE md5(input_json) = $task
), tried AS (
    SELECT same.run_id, called.policy_version, count(*) AS rollouts, avg(made.reward) AS reward,
        min(made.reward) AS low, max(made.reward) AS high,
        arg_max(rollout_id, (made.reward, rollout_id)) FILTER (made.reward IS NOT NULL) AS best,
        arg_min(rollout_id, (made.reward, rollout_id)) FILTER (made.reward IS NOT NULL) AS worst
    FROM same
    LEFT JOIN (
        SELECT rollout_id, any_value(reward) AS reward FROM trajectories_latest
        WHERE final AND rollout_id IN (SELECT rollout_id FROM same) GROUP BY rollout_id
    ) AS made USING (rollout_id)
    LEFT JOIN (
        SELECT rollout_id, max(llm_policy_version) AS policy_version FROM spans_raw
        WHERE rollout_id IN (SELECT rollout_id FROM same) GROUP BY rollout_id
    ) AS called USING (rollout_id)
    GROUP BY ALL
)
SELECT *, if(row_number() OVER in_order = 1, (SELECT any_value(input_json) FROM same), NULL) AS input_json
FROM tried
WINDOW in_order AS (ORDER BY run_id, policy_version)
ORDER BY run_id, policy_version
LIMIT 1000
