-- Runs, failures and time of each tool of each agent, the slowest first.
-- $run: only this run.
-- $limit = 100: how many rows.
SELECT
    run_id, tool_name, agent_name,
    count(*) AS runs,
    count(*) FILTER (failed) AS failed_runs,
    avg(seconds) AS seconds_mean,
    quantile_cont(seconds, 0.95) AS seconds_p95,
    max(seconds) AS seconds_max
FROM tools
WHERE $run::VARCHAR IS NULL OR run_id = $run
GROUP BY ALL
ORDER BY seconds_mean DESC NULLS LAST, tool_name
LIMIT $limit
