-- From enqueued work to training data, of each run, stage by stage, with where the rest went.
-- Columns:
--   run_id: the run; empty for rollouts without one, and for what belongs to no rollout.
--   stage: the stage, from enqueued rollouts to dead letters.
--   count: how many got there.
--   reason: why (a code), for stages that count what was lost; else empty.
WITH rollout AS MATERIALIZED (SELECT rollout_id, run_id, status, attempt_count FROM rollouts_latest),
call_fate AS MATERIALIZED (
    SELECT coalesce(rollout.run_id, '') AS run_id, fate, count(*) AS count
    FROM recorded_calls
    LEFT JOIN rollout USING (rollout_id)
    GROUP BY ALL
),
drop_reason AS MATERIALIZED (
    SELECT coalesce(run_id, '') AS run_id, is_llm_call, reason, count(*) AS count FROM dropped GROUP BY ALL
),
rewarded AS (SELECT DISTINCT rollout_id, attempt_id FROM triplets WHERE reward IS NOT NULL),
counted AS (
    SELECT run_id, 1 AS position, 'rollouts enqueued' AS stage, count(*) AS count, '' AS reason FROM rollout GROUP BY ALL
    UNION ALL SELECT run_id, 2, 'rollouts ' || status, count(*), '' FROM rollout GROUP BY ALL
    UNION ALL SELECT run_id, 3, 'attempts', sum(attempt_count)::BIGINT, '' FROM rollout GROUP BY ALL
    UNION ALL SELECT run_id, 4, 'LLM calls made', sum(count)::BIGINT, '' FROM call_fate GROUP BY ALL
    UNION ALL SELECT run_id, 5, 'LLM calls pending', count, '' FROM call_fate WHERE fate = 'pending'
    UNION ALL SELECT run_id, 6, 'LLM calls dropped', count, reason FROM drop_reason WHERE is_llm_call
    UNION ALL SELECT run_id, 7, 'LLM calls in triplets', count(*), '' FROM triplets GROUP BY ALL
    UNION ALL SELECT run_id, 8, 'rewards dropped', count, reason FROM drop_reason WHERE NOT is_llm_call
    UNION ALL SELECT run_id, 9, 'final trajectories', count(*), '' FROM trajectories_latest WHERE final GROUP BY ALL
    UNION ALL SELECT run_id, 10, 'final trajectories with a reward', count(*), ''
        FROM trajectories_latest LEFT JOIN rewarded USING (rollout_id, attempt_id)
        WHERE final AND (reward IS NOT NULL OR rewarded.attempt_id IS NOT NULL)
        GROUP BY ALL
    UNION ALL SELECT run_id, 11, 'trajectories consumed', count(*), '' FROM consumed_raw GROUP BY ALL
    UNION ALL SELECT run_id, 12, 'rollouts trained', count(DISTINCT rollout_id), '' FROM trained GROUP BY ALL
    UNION ALL SELECT run_id, 13, 'finished rollouts not trained', count(*), reason_code FROM why_not_trained GROUP BY ALL
    UNION ALL SELECT '', 14, 'dead letters', count(*), reason FROM dead_letters GROUP BY ALL
),
always (position, stage) AS (
    VALUES (1, 'rollouts enqueued'), (3, 'attempts'), (4, 'LLM calls made'), (5, 'LLM calls pending'),
        (7, 'LLM calls in triplets'), (9, 'final trajectories'), (10, 'final trajectories with a reward'),
        (11, 'trajectories consumed'), (12, 'rollouts trained')
)
SELECT run_id, stage, count, reason
FROM (
    FROM counted
    UNION ALL BY NAME
    SELECT run_id, position, stage, 0 AS count, '' AS reason
    FROM (FROM (SELECT DISTINCT run_id FROM counted WHERE position < 14) CROSS JOIN always) AS all_of_them
    ANTI JOIN counted USING (run_id, position)
)
ORDER BY run_id, position, stage, count DESC, reason
