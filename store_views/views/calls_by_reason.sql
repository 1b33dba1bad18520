-- LLM calls of assembled attempts of each run, by what became of them. Read from sums that are kept with the rows.
-- `llm_calls` has each single call, those of attempts that run, too.
-- Columns of `run_calls`, and:
--   calls: how many there are.
SELECT
    run_id, mode, fate, reason, sum(calls)::BIGINT AS calls, sum(prompt_tokens)::BIGINT AS prompt_tokens,
    sum(response_tokens)::BIGINT AS response_tokens
FROM run_calls
GROUP BY run_id, mode, fate, reason
HAVING sum(calls) > 0
