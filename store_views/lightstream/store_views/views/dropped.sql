-- Every LLM call and reward that did not become training data, with the reason. `derived` rows are calls that the
-- assembler never takes up: without a rollout, of an attempt that was never opened, or after their attempt was closed.
SELECT
    rollout_id, attempt_id, span_id, trace_id, response_id, choice_index, is_llm_call, reason, detail, false AS derived,
    run_id, mode, group_id, source_partition AS log_partition, source_offset AS log_offset
FROM assembler_drops
UNION ALL BY NAME
SELECT
    rollout_id, attempt_id, span_id, trace_id, response_id, choice_index, true AS is_llm_call, reason, detail,
    true AS derived, log_partition, log_offset
FROM call_spans
WHERE fate = 'dropped' AND fates = 0
