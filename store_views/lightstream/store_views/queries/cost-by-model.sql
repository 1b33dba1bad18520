-- Calls, tokens and time of each model, and what they cost where prices are given.
-- $run: only this run.
-- $prompt_price: price of a million prompt tokens.
-- $response_price: price of a million response tokens.
SELECT
    rollouts.run_id,
    coalesce(response_model, requested_model) AS model,
    count(*) AS calls,
    count(*) FILTER (llm_calls.error_message IS NOT NULL OR http_status >= 400) AS failed_calls,
    coalesce(sum(prompt_token_count), 0) AS prompt_tokens,
    coalesce(sum(response_token_count), 0) AS response_tokens,
    avg(llm_calls.seconds) AS seconds_mean,
    quantile_cont(llm_calls.seconds, 0.95) AS seconds_p95,
    (sum(prompt_token_count) * $prompt_price::DOUBLE + sum(response_token_count) * $response_price::DOUBLE) / 1e6
        AS cost
FROM llm_calls
LEFT JOIN rollouts USING (rollout_id)
WHERE $run::VARCHAR IS NULL OR rollouts.run_id = $run
GROUP BY ALL
ORDER BY prompt_tokens + response_tokens DESC, model
