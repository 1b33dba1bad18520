-- What became of every logged span that records an LLM call. `fate`: triplet, dropped, pending (its attempt is open, or
-- not yet assembled), repeated (the same span again, or attached to a rollout) or unaccounted (an error of ours, never expected).
-- Columns of `spans_raw`, and:
--   fate: `triplet`, `dropped`, `pending`, `repeated` or `unaccounted`.
--   reason: why the call was dropped; the codes are listed under Reasons.
--   detail: more about the reason, in words.
--   fates: how many triplets and drops the assembler made of the span; more than one is an error of ours.
WITH call AS (
    SELECT log_partition, log_offset, rollout_id, attempt_id, trace_id, span_id, llm_response_id AS response_id,
        llm_choice_index AS choice_index,
        min(log_offset) OVER (PARTITION BY log_partition, rollout_id, attempt_id, trace_id, span_id) AS first_offset
    FROM spans_raw
    WHERE llm_choice_index IS NOT NULL
),
accounted AS (
    SELECT source_partition, source_offset, rollout_id, attempt_id, response_id, choice_index,
        'triplet' AS fate, NULL AS reason, '' AS detail
    FROM triplets
    UNION ALL
    SELECT source_partition, source_offset, rollout_id, attempt_id, response_id, choice_index,
        if(is_llm_call, 'dropped', 'repeated'), reason, detail
    FROM assembler_drops
    WHERE is_llm_call OR reason = 'conflicting_span'  -- of whose call another span with its id told first
),
by_place AS (
    SELECT source_partition AS log_partition, source_offset AS log_offset, rollout_id,
        any_value(fate) AS fate, any_value(reason) AS reason, any_value(detail) AS detail, count(*) AS fates
    FROM accounted
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
        call.*, by_place.detail AS known_detail, coalesce(by_place.fates, 0) AS fates,
        CASE
            WHEN by_place.fate IS NOT NULL THEN by_place.fate
            WHEN first_offset < log_offset OR (rollout_id IS NULL AND is_attached) THEN 'repeated'
            WHEN rollout_id IS NULL OR attempt_id IS NULL OR opened_offset IS NULL THEN 'dropped'
            WHEN log_offset < opened_offset OR closed_offset < log_offset THEN 'dropped'
            WHEN assembled.full_from <= log_offset THEN 'dropped'
            WHEN assembled.known IS NOT NULL THEN 'unaccounted'
            ELSE 'pending'
        END AS fate,
        CASE
            WHEN by_place.fate IS NOT NULL THEN by_place.reason
            WHEN opened_offset < log_offset AND log_offset < closed_offset THEN 'too_large'
            WHEN opened_offset < log_offset THEN 'late'
            WHEN opened_offset IS NULL AND rollout.known IS NULL THEN 'no_rollout'
            ELSE 'attempt_refused'
        END AS known_reason
    FROM call
    LEFT JOIN attached USING (trace_id, span_id)
    LEFT JOIN by_place USING (log_partition, log_offset, rollout_id)
    LEFT JOIN opened USING (rollout_id, attempt_id)
    LEFT JOIN closed USING (rollout_id, attempt_id)
    LEFT JOIN assembled USING (rollout_id, attempt_id)
    LEFT JOIN (SELECT rollout_id, true AS known FROM rollouts_latest) AS rollout USING (rollout_id)
)
SELECT
    rollout_id, attempt_id, trace_id, span_id, response_id, choice_index, fate,
    CASE WHEN fate = 'dropped' THEN known_reason END AS reason,
    CASE
        WHEN fate <> 'dropped' THEN ''
        WHEN known_detail IS NOT NULL THEN known_detail
        WHEN known_reason = 'late' THEN 'logged after its attempt was closed, and in no revision (yet)'
        WHEN known_reason = 'too_large' THEN 'its attempt had too many spans'
        WHEN known_reason = 'attempt_refused' THEN 'its attempt was not opened, or not yet'
        ELSE 'no such rollout'
    END AS detail,
    fates, log_partition, log_offset
FROM judged
