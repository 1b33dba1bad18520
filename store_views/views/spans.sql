-- Every span once: of repeated spans the first in the log, of attached ones the one in its rollout.
-- Columns of `spans_raw` and `rollouts`, and:
--   rollout_status: status of the rollout now.
--   seconds: how long it took, in seconds.
--   is_llm_call: true where the writer recorded the span as an LLM call.
SELECT
    span.* REPLACE (
        attributes::JSON AS attributes, events::JSON AS events, links::JSON AS links,
        resource_attributes::JSON AS resource_attributes
    ),
    llm_choice_index IS NOT NULL AS is_llm_call,
    (span.end_unix_nano - span.start_unix_nano) / 1e9 AS seconds,
    rollout.run_id, rollout.mode, rollout.status AS rollout_status
FROM spans_raw AS span
-- Repeated ones are few, and joined by `rollout_id = `: so a filter on it reaches them too.
LEFT JOIN (
    SELECT again.log_partition, again.log_offset, again.rollout_id
    FROM spans_raw AS again
    JOIN (
        -- Almost no two spans share a hash; only those are compared.
        SELECT rollout_id, hash(log_partition, attempt_id, trace_id, span_id) AS identity
        FROM spans_raw
        GROUP BY ALL
        HAVING count(*) > 1
    ) AS suspect
        ON suspect.rollout_id = again.rollout_id
            AND suspect.identity = hash(again.log_partition, again.attempt_id, again.trace_id, again.span_id)
    QUALIFY row_number() OVER (
        PARTITION BY again.rollout_id, again.log_partition, again.attempt_id, again.trace_id, again.span_id
        ORDER BY again.log_offset
    ) > 1
) AS repeated
    ON repeated.log_partition = span.log_partition AND repeated.log_offset = span.log_offset
        AND repeated.rollout_id = span.rollout_id
-- Spans without a rollout by themselves, since NULL equals nothing. They are few, and so they are looked for among all.
LEFT JOIN (
    SELECT log_partition, log_offset
    FROM spans_raw
    WHERE rollout_id IS NULL
    QUALIFY row_number() OVER (PARTITION BY log_partition, attempt_id, trace_id, span_id ORDER BY log_offset) > 1
    UNION ALL
    SELECT alone.log_partition, alone.log_offset
    FROM spans_raw AS alone
    JOIN spans_raw AS attached USING (trace_id, span_id)
    WHERE alone.rollout_id IS NULL AND attached.rollout_id IS NOT NULL
) AS homeless
    ON homeless.log_partition = span.log_partition AND homeless.log_offset = span.log_offset
LEFT JOIN (SELECT rollout_id, run_id, mode, status FROM rollouts_latest) AS rollout
    ON rollout.rollout_id = span.rollout_id
WHERE repeated.log_offset IS NULL AND homeless.log_offset IS NULL
