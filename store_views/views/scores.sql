-- Every score that people and judges gave to a rollout or to a call of it, each once.
-- Columns of `spans_raw` and `rollouts`, and:
--   name: what was judged; the name of the reward.
--   value: the score.
--   comment: why, in the words of who scored; empty where nothing was said.
--   scored_by: who scored, such as `page`, `command line, ada` or `judge gpt-5-mini`; empty where nobody said.
--   key: names the score, so that the same one sent again is the same.
--   compared_with: of a pair, the other rollout; NULL for all others.
--   scored_span_id: span that was scored; NULL where it is the whole rollout.
--   scored_unix_nano: time at which it was scored.
--   match: what its reward was matched to in the latest revision of the trajectory, as in `rewards`; NULL while no
--     trajectory has it.
SELECT
    span.rollout_id, span.attempt_id, rollout.run_id,
    coalesce(span.attributes ->> '$."agentlightning.reward.0.name"', '') AS name,
    (span.attributes ->> '$."agentlightning.reward.0.value"')::DOUBLE AS value,
    coalesce(span.attributes ->> '$."lightstream.feedback.comment"', '') AS comment,
    coalesce(span.attributes ->> '$."lightstream.feedback.by"', '') AS scored_by,
    coalesce(span.attributes ->> '$."lightstream.feedback.key"', '') AS key,
    span.attributes ->> '$."lightstream.feedback.compared_with"' AS compared_with,
    span.parent_id AS scored_span_id,
    span.start_unix_nano AS scored_unix_nano,
    reward.match, span.trace_id, span.span_id, span.log_partition, span.log_offset
FROM (
    SELECT rollout_id, attempt_id, trace_id, span_id, parent_id, attributes, start_unix_nano, log_partition, log_offset
    FROM spans_raw
    WHERE scope_name = 'lightstream.feedback' AND has_reward
    QUALIFY row_number() OVER (PARTITION BY rollout_id, attempt_id, trace_id, span_id ORDER BY log_offset) = 1
) AS span
LEFT JOIN (SELECT rollout_id, run_id FROM rollouts_latest) AS rollout ON rollout.rollout_id = span.rollout_id
LEFT JOIN (SELECT rollout_id, attempt_id, trace_id, span_id, any_value(match) AS match FROM rewards GROUP BY ALL)
    AS reward
    ON reward.rollout_id = span.rollout_id AND reward.attempt_id = span.attempt_id
        AND reward.trace_id = span.trace_id AND reward.span_id = span.span_id
