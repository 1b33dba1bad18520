-- Each tool of a run: calls, errors, time, and the mean reward of the rollouts that used it, that did not, and in which it
-- failed. The one with the most errors first.
-- $run: the run.
WITH used AS (
    SELECT tool_name, rollout_id, failed, seconds, error_message, error_type FROM tools WHERE run_id = $run
), finished AS (
    SELECT rollout_id, any_value(reward) AS reward FROM trajectories_latest
    WHERE final AND run_id = $run AND reward IS NOT NULL GROUP BY rollout_id
), by_rollout AS (
    SELECT tool_name, rollout_id, bool_or(failed) AS failed FROM used GROUP BY ALL
), rewarded AS (
    SELECT tool_name, count(*) AS rollouts, avg(reward) AS reward_with, sum(reward) AS reward_sum, count(reward) AS reward_count,
        avg(reward) FILTER (by_rollout.failed) AS reward_failed
    FROM by_rollout LEFT JOIN finished USING (rollout_id)
    GROUP BY tool_name
), every AS (SELECT sum(reward) AS reward_sum, count(*) AS reward_count FROM finished)
SELECT tool_name, calls, errors, errors / calls AS error_rate, seconds_p50, seconds_p95, seconds_share, rollouts, reward_with,
    (every.reward_sum - rewarded.reward_sum) / nullif(every.reward_count - rewarded.reward_count, 0) AS reward_without,
    reward_failed, last_error, error_rollout
FROM (
    SELECT tool_name, count(*) AS calls, count(*) FILTER (failed) AS errors,
        quantile_cont(seconds, 0.5) AS seconds_p50, quantile_cont(seconds, 0.95) AS seconds_p95,
        sum(seconds) / nullif(sum(sum(seconds)) OVER (), 0) AS seconds_share,
        left(any_value(coalesce(nullif(error_message, ''), error_type)) FILTER (failed), 300) AS last_error,
        any_value(rollout_id) FILTER (failed) AS error_rollout
    FROM used GROUP BY tool_name
) AS called
JOIN rewarded USING (tool_name)
CROSS JOIN every
ORDER BY errors DESC, calls DESC, tool_name
LIMIT 200
