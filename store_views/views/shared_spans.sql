-- Spans that were logged under several rollouts: a call among them is training data of each. Only the log of all
-- partitions shows them; the assembler of one rollout does not.
-- Columns of `spans_raw` and `rollouts`, and:
--   is_llm_call: true where the span was recorded as an LLM call.
--   reason: always `shared_span`.
--   detail: the other rollouts that the span was logged under.
SELECT
    span.rollout_id, span.attempt_id, span.trace_id, span.span_id, span.llm_response_id AS response_id,
    span.llm_choice_index IS NOT NULL AS is_llm_call, 'shared_span' AS reason,
    'also logged under ' || array_to_string(list_filter(shared.rollout_ids, lambda id: id <> span.rollout_id), ', ')
        AS detail,
    rollout.run_id, rollout.mode, span.log_partition, span.log_offset
FROM spans_raw AS span
JOIN (
    SELECT trace_id, span_id, list_sort(list(DISTINCT rollout_id)) AS rollout_ids
    FROM spans_raw
    JOIN (
        -- Almost no two spans share a hash; only those are compared.
        SELECT hash(trace_id, span_id) AS identity
        FROM spans_raw
        WHERE rollout_id IS NOT NULL
        GROUP BY ALL
        HAVING min(rollout_id) <> max(rollout_id)
    ) AS suspect ON suspect.identity = hash(spans_raw.trace_id, spans_raw.span_id)
    WHERE rollout_id IS NOT NULL
    GROUP BY ALL
    HAVING len(rollout_ids) > 1
) AS shared USING (trace_id, span_id)
LEFT JOIN (SELECT rollout_id, run_id, mode FROM rollouts_latest) AS rollout ON rollout.rollout_id = span.rollout_id
WHERE span.rollout_id IS NOT NULL
QUALIFY row_number() OVER (
    PARTITION BY span.rollout_id, span.log_partition, span.attempt_id, span.trace_id, span.span_id
    ORDER BY span.log_offset
) = 1
