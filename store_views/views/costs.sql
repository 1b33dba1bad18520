-- Every LLM call once, and what it cost by the table `prices`. Where that has no price for its model, or nobody counted its
-- tokens, the cost is NULL. Of several choices of one response, the first has the tokens of the prompt.
-- Columns of `llm_calls`, and:
--   prompt_tokens: tokens of the prompt.
--   cached_tokens: those of them that the model server had in its cache.
--   response_tokens: tokens of the response.
--   price_of: model in `prices` whose price was taken: that of the version, else of the model asked for, else of the model.
--   cost: what it cost, in the currency of the prices (US dollars, of those that came with the installation).
SELECT
    call.run_id, call.mode, call.status, call.group_id, call.rollout_id, call.attempt_id, call.agent_name, call.model,
    call.model_version, call.fate, call.trace_id, call.span_id, call.response_id, call.choice_index,
    CASE WHEN call.choice_index = 0 THEN call.prompt_token_count ELSE 0 END AS prompt_tokens,
    CASE WHEN call.choice_index = 0 THEN call.cached_token_count ELSE 0 END AS cached_tokens,
    call.response_token_count AS response_tokens,
    coalesce(exact.model, asked.model, family.model) AS price_of,
    (
        (prompt_tokens - coalesce(cached_tokens, 0)) * coalesce(exact.prompt_price, asked.prompt_price, family.prompt_price)
        + coalesce(cached_tokens, 0) * CASE
            WHEN exact.model IS NOT NULL THEN coalesce(exact.cached_price, exact.prompt_price)
            WHEN asked.model IS NOT NULL THEN coalesce(asked.cached_price, asked.prompt_price)
            ELSE coalesce(family.cached_price, family.prompt_price)
        END
        + coalesce(response_tokens, 0)
            * coalesce(exact.response_price, asked.response_price, family.response_price)
    ) / 1e6 AS cost,
    call.seconds, call.error_message, call.start_unix_nano, call.end_unix_nano, call.log_partition, call.log_offset
FROM llm_calls AS call
LEFT JOIN prices AS exact ON exact.model = call.model_version
LEFT JOIN prices AS asked ON asked.model = call.requested_model
LEFT JOIN prices AS family ON family.model = call.model
WHERE call.reason IS DISTINCT FROM 'duplicate_call'
