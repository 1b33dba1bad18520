-- What became of every logged span that records an LLM call and that the assembler made nothing of: see `call_spans`.
-- Columns of `spans_raw`, and:
--   fate: `dropped`, `pending`, `repeated` or `unaccounted`.
--   reason: why the call was dropped; the codes are listed under Reasons.
--   detail: more about the reason, in words.
WITH call AS NOT MATERIALIZED (
    SELECT log_partition, log_offset, rollout_id, attempt_id, trace_id, span_id, llm_response_id AS response_id,
        llm_choice_index AS choice_index
    FROM spans_raw
    ANTI JOIN (
        SELECT source_partition AS log_partition, source_offset AS log_offset, rollout_id FROM triplets
        UNION ALL
        SELECT source_partition, source_offset, rollout_id FROM assembler_drops
        WHERE is_llm_call OR reason = 'conflicting_span'
    ) AS accounted USING (log_partition, log_offset, rollout_id)
    WHERE llm_choice_index IS NOT NULL
),
same AS (
    SELECT log_partition, rollout_id, attempt_id, trace_id, span_id, min(log_offset) AS first_offset
    FROM spans_raw
    SEMI JOIN (SELECT trace_id, span_id FROM call) AS these USING (trace_id, span_id)
    WHERE llm_choice_index IS NOT NULL
    GROUP BY ALL
),
attached AS (
    SELECT DISTINCT trace_id, span_id, true AS is_attached
    FROM spans_raw AS owned
    SEMI JOIN (SELECT trace_id, span_id FROM call WHERE rollout_id IS NULL) AS free USING (trace_id, span_id)
    WHERE owned.rollout_id IS NOT NULL
),
opened AS (SELECT rollout_id, attempt_id, min(log_offset) AS opened_offset FROM attempts_opened_raw GROUP BY ALL),
closed AS (SELECT rollout_id, attempt_id, min(log_offset) AS closed_offset FROM attempts_closed_raw GROUP BY ALL),
assembled AS (
    SELECT rollout_id, attempt_id, true AS known, nullif(full_from_offset, -1) AS full_from FROM trajectories_latest
),
judged AS (
    SELECT
        call.*,
        CASE
            WHEN first_offset < call.log_offset OR (call.rollout_id IS NULL AND is_attached) THEN 'repeated'
            WHEN call.rollout_id IS NULL OR call.attempt_id IS NULL OR opened_offset IS NULL THEN 'dropped'
            WHEN call.log_offset < opened_offset OR closed_offset < call.log_offset THEN 'dropped'
            WHEN assembled.full_from <= call.log_offset THEN 'dropped'
            WHEN assembled.known IS NOT NULL THEN 'unaccounted'
            ELSE 'pending'
        END AS fate,
        CASE
            WHEN opened_offset < call.log_offset AND call.log_offset < closed_offset THEN 'too_large'
            WHEN opened_offset < call.log_offset THEN 'late'
            WHEN opened_offset IS NULL AND rollout.known IS NULL THEN 'no_rollout'
            ELSE 'attempt_refused'
        END AS known_reason
    FROM call
    LEFT JOIN same
        ON same.log_partition = call.log_partition AND same.trace_id = call.trace_id AND same.span_id = call.span_id
            AND same.rollout_id IS NOT DISTINCT FROM call.rollout_id
            AND same.attempt_id IS NOT DISTINCT FROM call.attempt_id
    LEFT JOIN attached ON attached.trace_id = call.trace_id AND attached.span_id = call.span_id
    LEFT JOIN opened ON opened.rollout_id = call.rollout_id AND opened.attempt_id = call.attempt_id
    LEFT JOIN closed ON closed.rollout_id = call.rollout_id AND closed.attempt_id = call.attempt_id
    LEFT JOIN assembled ON assembled.rollout_id = call.rollout_id AND assembled.attempt_id = call.attempt_id
    LEFT JOIN (SELECT rollout_id, true AS known FROM rollouts_latest) AS rollout
        ON rollout.rollout_id = call.rollout_id
)
SELECT
    rollout_id, attempt_id, trace_id, span_id, response_id, choice_index, fate,
    CASE WHEN fate = 'dropped' THEN known_reason END AS reason,
    CASE
        WHEN fate <> 'dropped' THEN ''
        WHEN known_reason = 'late' THEN 'logged after its attempt was closed, and in no revision (yet)'
        WHEN known_reason = 'too_large' THEN 'its attempt had too many spans'
        WHEN known_reason = 'attempt_refused' THEN 'its attempt was not opened, or not yet'
        ELSE 'no such rollout'
    END AS detail,
    log_partition, log_offset
FROM judged
