-- Calls and rewards of each agent, in the trajectories that count.
-- $run: only this run.
-- $mode: only train, val or test.
SELECT
    run_id, agent_name,
    count(*) AS calls,
    count(DISTINCT rollout_id) AS rollouts,
    count(reward) AS rewarded_calls,
    avg(reward) AS reward_mean,
    stddev_samp(reward) AS reward_deviation,
    min(reward) AS reward_min,
    max(reward) AS reward_max,
    avg(response_token_count) AS response_tokens_mean
FROM triplets
WHERE final
    AND ($run::VARCHAR IS NULL OR run_id = $run)
    AND ($mode::VARCHAR IS NULL OR mode = $mode)
GROUP BY ALL
ORDER BY run_id, agent_name
