-- LLM calls that became no training data, the latest first, with the reason.
-- $run: only this run.
-- $reason: only this reason, such as no_token_ids.
-- $limit = 100: how many rows.
SELECT run_id, rollout_id, attempt_id, span_id, reason, detail, log_partition, log_offset
FROM dropped
WHERE is_llm_call
    AND ($run::VARCHAR IS NULL OR run_id = $run)
    AND ($reason::VARCHAR IS NULL OR reason = $reason)
ORDER BY log_offset DESC, log_partition, span_id
LIMIT $limit
