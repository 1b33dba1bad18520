-- From enqueued work to training data, stage by stage, with where the rest went.
-- Columns:
--   stage: the stage, from enqueued rollouts to dead letters.
--   count: how many got there.
--   reason: why (a code), for stages that count what was lost; else empty.
WITH call_fate AS MATERIALIZED (SELECT fate, count(*) AS count FROM llm_calls GROUP BY fate),
drop_reason AS MATERIALIZED (SELECT is_llm_call, reason, count(*) AS count FROM dropped GROUP BY ALL),
rewarded AS (SELECT DISTINCT rollout_id, attempt_id FROM triplets WHERE reward IS NOT NULL)
SELECT stage, count, reason
FROM (
    SELECT 1 AS position, 'rollouts enqueued' AS stage, count(*) AS count, '' AS reason FROM rollouts
    UNION ALL SELECT 2, 'rollouts ' || status, count(*), '' FROM rollouts GROUP BY status
    UNION ALL SELECT 3, 'attempts', count(*), '' FROM attempts
    UNION ALL SELECT 4, 'LLM calls made', coalesce(sum(count), 0)::BIGINT, '' FROM call_fate
    UNION ALL SELECT 5, 'LLM calls pending', coalesce(sum(count), 0)::BIGINT, '' FROM call_fate WHERE fate = 'pending'
    UNION ALL SELECT 6, 'LLM calls dropped', count, reason FROM drop_reason WHERE is_llm_call
    UNION ALL SELECT 7, 'LLM calls in triplets', count(*), '' FROM triplets
    UNION ALL SELECT 8, 'rewards dropped', count, reason FROM drop_reason WHERE NOT is_llm_call
    UNION ALL SELECT 9, 'final trajectories', count(*), '' FROM trajectories_latest WHERE final
    UNION ALL SELECT 10, 'final trajectories with a reward', count(*), ''
        FROM trajectories_latest LEFT JOIN rewarded USING (rollout_id, attempt_id)
        WHERE final AND (reward IS NOT NULL OR rewarded.attempt_id IS NOT NULL)
    UNION ALL SELECT 11, 'trajectories consumed', count(*), '' FROM consumed_raw
    UNION ALL SELECT 12, 'rollouts trained', count(DISTINCT rollout_id), '' FROM trained
    UNION ALL SELECT 13, 'finished rollouts not trained', count(*), reason_code FROM why_not_trained GROUP BY reason_code
    UNION ALL SELECT 14, 'dead letters', count(*), reason FROM dead_letters GROUP BY reason
)
ORDER BY position, stage, count DESC, reason
