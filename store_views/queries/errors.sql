-- The errors of a run by their last line: where they happened, how often, in how many rollouts, and over its time, of which
-- `counts` has twenty parts. The most frequent first.
-- $run: the run.
WITH said AS (
    SELECT 'attempt' AS place, coalesce(error_type, '') AS name, error_message AS text, rollout_id, ended_unix_nano AS moment
    FROM attempts
    WHERE run_id = $run AND (error_message <> '' OR error_type <> '')
    UNION ALL
    SELECT 'tool', tool_name, coalesce(nullif(error_message, ''), error_type), rollout_id, end_unix_nano
    FROM tools WHERE run_id = $run AND failed
    UNION ALL
    SELECT 'LLM call', coalesce(llm_requested_model, ''), llm_error_message, rollout_id, end_unix_nano
    FROM spans WHERE run_id = $run AND is_llm_call AND llm_error_message <> ''
), lasted AS (
    SELECT min(enqueued_unix_nano) AS began, max(updated_unix_nano) AS ended FROM rollouts WHERE run_id = $run
), lined AS (
    SELECT place, name, left(split_part(trim(coalesce(text, ''), chr(10) || ' '), chr(10), -1), 300) AS error, rollout_id, moment,
        (moment - began) / greatest(1, ended - began) AS share
    FROM said CROSS JOIN lasted
), counted AS (
    SELECT place, name, error, greatest(0, least(19, floor(20 * share)))::BIGINT AS part, count(*) AS parts
    FROM lined GROUP BY ALL
)
SELECT place, name, error, found.count, found.rollouts, found.example, found.first_unix_nano, found.last_unix_nano,
    list_transform(range(20), lambda one: coalesce(map_extract_value(spread.parts, one), 0)) AS counts
FROM (
    SELECT place, name, error, count(*) AS count, count(DISTINCT rollout_id) AS rollouts, max(rollout_id) AS example,
        min(moment)::VARCHAR AS first_unix_nano, max(moment)::VARCHAR AS last_unix_nano
    FROM lined GROUP BY ALL
) AS found
JOIN (SELECT place, name, error, map(list(part), list(parts)) AS parts FROM counted GROUP BY ALL) AS spread
    USING (place, name, error)
ORDER BY count DESC, error
LIMIT 200
