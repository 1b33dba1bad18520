-- How many LLM calls and rewards were dropped, by reason, and their share of all LLM calls.
-- $run: only this run.
SELECT
    run_id, is_llm_call, reason,
    count(*) AS dropped,
    count(DISTINCT rollout_id) AS rollouts,
    CASE WHEN is_llm_call THEN count(*) / (
        SELECT count(*) FROM llm_calls WHERE $run::VARCHAR IS NULL OR run_id = $run
    ) END AS share_of_calls,
    any_value(detail) AS example
FROM dropped
WHERE $run::VARCHAR IS NULL OR run_id = $run
GROUP BY run_id, is_llm_call, reason
ORDER BY dropped DESC, reason
