-- LLM calls and rewards that attributes or events of spans tell of, where the assembler never takes the span up: it has
-- no rollout, its attempt was never opened or had too many spans, or it came too late. Calls that the writer recorded as
-- such are in `call_spans`. Not counted again are calls that another span tells of, by response id; nor is a span of LLM
-- kind that names no call, where another in its trace or attempt does.
-- Columns of `spans_raw`, and:
--   response_id: id of the response that the call names.
--   choice_index: number of the choice within that response.
--   is_llm_call: true for an LLM call, false for a reward.
--   reason: why it is in no trajectory; the codes are listed under Reasons.
--   detail: more about the reason, in words.
WITH told AS NOT MATERIALIZED (
    SELECT log_partition, log_offset, rollout_id, attempt_id, trace_id, span_id, read_calls,
        read_response_id AS response_id, has_reward,
        min(log_offset) OVER (PARTITION BY log_partition, rollout_id, attempt_id, trace_id, span_id) AS first_offset
    FROM spans_raw
    WHERE read_calls IS NOT NULL OR has_reward
),
opened AS (SELECT rollout_id, attempt_id, min(log_offset) AS opened_offset FROM attempts_opened_raw GROUP BY ALL),
closed AS (SELECT rollout_id, attempt_id, min(log_offset) AS closed_offset FROM attempts_closed_raw GROUP BY ALL),
assembled AS (
    SELECT rollout_id, attempt_id, source_last_offset AS last_offset, nullif(full_from_offset, -1) AS full_from
    FROM trajectories_latest
),
attached AS (
    SELECT DISTINCT trace_id, span_id, true AS is_attached
    FROM spans_raw AS owned
    SEMI JOIN (
        SELECT trace_id, span_id FROM spans_raw WHERE rollout_id IS NULL AND (read_calls IS NOT NULL OR has_reward)
    ) AS free USING (trace_id, span_id)
    WHERE owned.rollout_id IS NOT NULL
),
lost AS NOT MATERIALIZED (
    SELECT told.*,
        CASE
            WHEN opened_offset IS NULL AND rollout.known IS NULL THEN 'no_rollout'
            WHEN opened_offset IS NULL OR log_offset < opened_offset THEN 'attempt_refused'
            WHEN closed_offset < log_offset AND coalesce(last_offset < log_offset, true) THEN 'late'
            WHEN full_from <= log_offset THEN 'too_large'
        END AS reason
    FROM told
    LEFT JOIN attached USING (trace_id, span_id)
    LEFT JOIN opened USING (rollout_id, attempt_id)
    LEFT JOIN closed USING (rollout_id, attempt_id)
    LEFT JOIN assembled USING (rollout_id, attempt_id)
    LEFT JOIN (SELECT rollout_id, true AS known FROM rollouts_latest) AS rollout USING (rollout_id)
    WHERE first_offset = log_offset AND (rollout_id IS NOT NULL OR is_attached IS NULL) AND reason IS NOT NULL
),
-- Who else tells of the same response: of those without a rollout anywhere, of the others in their rollout.
anywhere AS (
    SELECT coalesce(llm_response_id, read_response_id) AS response_id,
        bool_or(llm_choice_index IS NOT NULL) AS is_recorded,
        min((log_partition, log_offset)) FILTER (rollout_id IS NULL) AS first_place
    FROM spans_raw AS span
    SEMI JOIN (
        SELECT read_response_id FROM spans_raw WHERE rollout_id IS NULL AND read_response_id IS NOT NULL
    ) AS free ON free.read_response_id = coalesce(span.llm_response_id, span.read_response_id)
    GROUP BY ALL
),
in_rollout AS (
    SELECT rollout_id, coalesce(llm_response_id, read_response_id) AS response_id,
        bool_or(llm_choice_index IS NOT NULL) AS is_recorded, min(log_offset) AS first_offset
    FROM spans_raw AS span
    SEMI JOIN (
        SELECT rollout_id, read_response_id FROM spans_raw WHERE read_response_id IS NOT NULL
    ) AS told
        ON told.rollout_id = span.rollout_id
            AND told.read_response_id = coalesce(span.llm_response_id, span.read_response_id)
    GROUP BY ALL
),
-- Where spans name a call, beside those that may belong to none.
naming_trace AS (
    SELECT DISTINCT trace_id, true AS is_named
    FROM spans_raw AS span
    SEMI JOIN (SELECT trace_id FROM spans_raw WHERE read_calls = 0) AS unsure USING (trace_id)
    WHERE llm_choice_index IS NOT NULL OR read_calls > 0
),
naming_attempt AS (
    SELECT DISTINCT rollout_id, attempt_id, true AS is_named
    FROM spans_raw AS span
    SEMI JOIN (SELECT rollout_id, attempt_id FROM spans_raw WHERE read_calls = 0) AS unsure
        USING (rollout_id, attempt_id)
    WHERE llm_choice_index IS NOT NULL OR read_calls > 0
),
found AS (
    SELECT lost.*, unnest(range(greatest(read_calls, 1)::BIGINT)) AS choice_index, true AS is_llm_call
    FROM lost
    LEFT JOIN anywhere ON anywhere.response_id = lost.response_id AND lost.rollout_id IS NULL
    LEFT JOIN in_rollout ON in_rollout.rollout_id = lost.rollout_id AND in_rollout.response_id = lost.response_id
    LEFT JOIN naming_trace ON naming_trace.trace_id = lost.trace_id AND lost.read_calls = 0
    LEFT JOIN naming_attempt
        ON naming_attempt.rollout_id = lost.rollout_id AND naming_attempt.attempt_id = lost.attempt_id
            AND lost.read_calls = 0
    WHERE read_calls IS NOT NULL
        AND coalesce(NOT anywhere.is_recorded AND first_place = (lost.log_partition, lost.log_offset), true)
        AND coalesce(NOT in_rollout.is_recorded AND in_rollout.first_offset = lost.log_offset, true)
        AND naming_trace.is_named IS NULL AND naming_attempt.is_named IS NULL
    UNION ALL BY NAME
    SELECT lost.* REPLACE (NULL::VARCHAR AS response_id), 0 AS choice_index, false AS is_llm_call
    FROM lost
    WHERE has_reward
)
SELECT
    rollout_id, attempt_id, trace_id, span_id, response_id, choice_index, is_llm_call, reason,
    CASE reason
        WHEN 'late' THEN 'logged after its attempt was closed, and in no revision (yet)'
        WHEN 'too_large' THEN 'its attempt had too many spans'
        WHEN 'attempt_refused' THEN 'its attempt was not opened, or not yet'
        ELSE 'no such rollout'
    END AS detail,
    log_partition, log_offset
FROM found
