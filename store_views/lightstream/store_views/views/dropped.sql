-- Every LLM call and reward that did not become training data, with the reason. `derived` rows are calls that the
-- assembler never takes up: without a rollout, of an attempt that was never opened, or so long after their attempt was
-- closed, or so many, that they are in no revision; and such rewards.
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
FROM call_spans
WHERE fate = 'dropped' AND fates = 0
UNION ALL BY NAME
SELECT
    rollout_id, attempt_id, span_id, trace_id, NULL AS response_id, 0 AS choice_index, false AS is_llm_call,
    'late' AS reason, 'logged after its attempt was closed, and in no revision (yet)' AS detail, true AS derived,
    log_partition, log_offset
FROM spans_raw AS span
SEMI JOIN (
    SELECT rollout_id, attempt_id, min(log_offset) AS closed_offset FROM attempts_closed_raw GROUP BY ALL
) AS closed
    ON closed.rollout_id = span.rollout_id AND closed.attempt_id = span.attempt_id
        AND closed.closed_offset < span.log_offset
ANTI JOIN trajectories_raw AS trajectory
    ON trajectory.rollout_id = span.rollout_id AND trajectory.attempt_id = span.attempt_id
        AND trajectory.source_partition = span.log_partition AND trajectory.source_last_offset >= span.log_offset
ANTI JOIN spans_raw AS earlier
    ON earlier.rollout_id = span.rollout_id AND earlier.attempt_id = span.attempt_id
        AND earlier.trace_id = span.trace_id AND earlier.span_id = span.span_id
        AND earlier.log_partition = span.log_partition AND earlier.log_offset < span.log_offset
WHERE attributes LIKE '%agentlightning.reward.%'
