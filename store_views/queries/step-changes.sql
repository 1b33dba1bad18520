-- A step beside another: errors, tools, lengths and tasks of the rollouts that each consumed, the greatest change first.
-- `kind` is `rollouts`, `length`, `error` (rollouts with it), `tool calls`, `tool errors` or `task` (mean reward of one
-- that both had); at most 50 rows each. Errors and tools are of all attempts, the rest of the last. A side is NULL where the
-- step had nothing of it.
-- $run: the run.
-- $step: the step.
-- $before: the other step.
WITH used AS (
    SELECT DISTINCT rollout_id, step = $step::BIGINT AS is_now
    FROM consumed_raw WHERE run_id = $run AND step IN ($step::BIGINT, $before::BIGINT)
), made AS (
    SELECT used.rollout_id, is_now, reward, call_count, seconds FROM used
    JOIN trajectories USING (rollout_id) WHERE final
), answered AS (
    SELECT rollout_id, sum(response_token_count) AS response_tokens FROM triplets
    WHERE final AND rollout_id IN (SELECT rollout_id FROM used) GROUP BY rollout_id
), tool AS MATERIALIZED (
    SELECT tool_name, rollout_id, failed, is_now, coalesce(nullif(error_message, ''), error_type) AS text
    FROM tools JOIN used USING (rollout_id)
), failed AS (
    SELECT 'attempt' AS place, error_type AS name, error_message AS text, rollout_id FROM attempts
    WHERE run_id = $run AND (error_message <> '' OR error_type <> '')
    UNION ALL
    SELECT 'tool', tool_name, text, rollout_id FROM tool WHERE failed
    UNION ALL
    SELECT 'LLM call', llm_requested_model, llm_error_message, rollout_id FROM spans
    WHERE run_id = $run AND is_llm_call AND llm_error_message <> ''
), compared AS (
    SELECT 'rollouts' AS kind, 'mean reward' AS name, avg(reward) FILTER (NOT is_now) AS before, avg(reward) FILTER (is_now) AS now,
        NULL AS example FROM made
    UNION ALL
    SELECT 'length', 'LLM calls of a rollout', avg(call_count) FILTER (NOT is_now), avg(call_count) FILTER (is_now), NULL FROM made
    UNION ALL
    SELECT 'length', 'seconds of a rollout', avg(seconds) FILTER (NOT is_now), avg(seconds) FILTER (is_now), NULL FROM made
    UNION ALL
    SELECT 'length', 'response tokens of a rollout', avg(response_tokens) FILTER (NOT is_now),
        avg(response_tokens) FILTER (is_now), NULL
    FROM used JOIN answered USING (rollout_id)
    UNION ALL
    SELECT 'error', concat(place, ' ', name, ': ', left(split_part(trim(text, chr(10) || ' '), chr(10), -1), 300)) AS said,
        count(DISTINCT rollout_id) FILTER (NOT is_now), count(DISTINCT rollout_id) FILTER (is_now),
        coalesce(max(rollout_id) FILTER (is_now), max(rollout_id))
    FROM failed JOIN used USING (rollout_id) GROUP BY said
    UNION ALL
    SELECT 'tool calls', tool_name, count(*) FILTER (NOT is_now), count(*) FILTER (is_now), NULL
    FROM tool GROUP BY tool_name
    UNION ALL
    SELECT 'tool errors', tool_name, avg(failed::INTEGER) FILTER (NOT is_now), avg(failed::INTEGER) FILTER (is_now),
        max(rollout_id) FILTER (is_now AND failed)
    FROM tool GROUP BY tool_name
    UNION ALL
    SELECT 'task', left(input_json, 300), avg(made.reward) FILTER (NOT is_now), avg(made.reward) FILTER (is_now),
        coalesce(min(rollout_id) FILTER (is_now), max(rollout_id))
    FROM made JOIN (SELECT rollout_id, input_json FROM rollouts WHERE run_id = $run) USING (rollout_id)
    GROUP BY input_json HAVING count(DISTINCT is_now) = 2
)
SELECT kind, name, before, now, example FROM compared
WHERE before IS NOT NULL OR now IS NOT NULL
WINDOW greatest_first AS (PARTITION BY kind ORDER BY abs(now - before) DESC NULLS LAST, name, example)
QUALIFY row_number() OVER greatest_first <= 50
ORDER BY kind, abs(now - before) DESC NULLS LAST, name, example
