-- Calls, tokens, time and cost of each model, whichever version of it, by the table `prices`.
-- $run: only this run.
SELECT
    run_id, model,
    count(DISTINCT model_version) AS versions,
    count(*) AS calls,
    count(error_message) AS failed_calls,
    coalesce(sum(prompt_tokens), 0)::BIGINT AS prompt_tokens,
    coalesce(sum(response_tokens), 0)::BIGINT AS response_tokens,
    avg(seconds) AS seconds_mean,
    quantile_cont(seconds, 0.95) AS seconds_p95,
    sum(cost) AS cost,
    count(*) FILTER (cost IS NULL AND error_message IS NULL) AS calls_without_price
FROM costs
WHERE $run::VARCHAR IS NULL OR run_id = $run
GROUP BY run_id, model
ORDER BY cost DESC NULLS LAST, calls DESC, model
