-- LLM calls and rewards that were dropped, by reason, with the last of each.
-- $run: only this run, and what belongs to no rollout.
SELECT reason, is_llm_call, count(*) AS count, arg_max(detail, log_offset) AS detail,
  arg_max(rollout_id, log_offset) AS rollout_id, arg_max(span_id, log_offset) AS span_id,
  arg_max(log_partition, log_offset)::INTEGER AS log_partition, max(log_offset) AS log_offset
FROM dropped
WHERE $run::VARCHAR IS NULL OR run_id IS NULL OR run_id = $run
GROUP BY ALL ORDER BY count DESC
