-- What came of one task, by run and policy version, with the rollouts that had the highest and the lowest reward of each: the
-- thousand that were asked for last. The first row alone has the input; each has the number of all rollouts.
-- $task: the hash (MD5) of its input.
WITH same AS (
    SELECT rollout_id, run_id, enqueued_unix_nano, input_json FROM rollouts WHERE md5(input_json) = $task
), tried AS (
    SELECT same.run_id, called.policy_version, count(*) AS rollouts, avg(made.reward) AS reward,
        max(same.enqueued_unix_nano) AS asked_unix_nano,
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
SELECT * EXCLUDE (asked_unix_nano), if(row_number() OVER in_order = 1, (SELECT any_value(input_json) FROM same), NULL) AS input_json
FROM (
    SELECT *, (SELECT count(*) FROM same) AS of_rollouts FROM tried
    ORDER BY asked_unix_nano DESC, run_id, policy_version LIMIT 1000
)
WINDOW in_order AS (ORDER BY run_id, policy_version)
ORDER BY run_id, policy_version
