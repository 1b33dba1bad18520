-- Every LLM call and reward that did not become training data, with the reason. `derived` rows are calls and rewards that
-- the assembler never takes up: without a rollout, of an attempt that was never opened, or so long after their attempt
-- was closed, or so many, that they are in no revision.
-- Columns of `assembler_drops`, and:
--   derived: true for rows that only the log shows, since the assembler never takes them up.
--   log_partition: partition of the topic `spans` that the span lies in.
--   log_offset: offset of the span in that partition.
SELECT
    rollout_id, attempt_id, span_id, trace_id, response_id, choice_index, is_llm_call, reason, detail, false AS derived,
    run_id, mode, group_id, source_partition AS log_partition, source_offset AS log_offset
FROM assembler_drops
UNION ALL BY NAME
SELECT
    rollout_id, attempt_id, span_id, trace_id, response_id, choice_index, true AS is_llm_call, reason, detail,
    true AS derived, log_partition, log_offset
FROM unaccounted_calls
WHERE fate = 'dropped'
UNION ALL BY NAME
SELECT
    rollout_id, attempt_id, span_id, trace_id, response_id, choice_index, is_llm_call, reason, detail, true AS derived,
    log_partition, log_offset
FROM unassembled
