-- Every rollout that no training step has consumed, and why, in words.
-- Columns of `rollouts`, and:
--   reason: why no step has consumed the rollout, in words.
WITH final_trajectory AS (
    SELECT rollout_id, attempt_id, group_id, error_type FROM trajectories WHERE final
),
finished_in_group AS (
    SELECT coalesce(group_id, rollout_id) AS group_id, count(*) AS finished FROM final_trajectory GROUP BY ALL
),
usable AS (
    SELECT rollout_id, attempt_id, count(*) AS triplets, count(*) FILTER (isfinite(reward)) AS rewarded
    FROM triplets GROUP BY ALL
),
lost AS (
    SELECT rollout_id, string_agg(times || ' ' || reason, ', ' ORDER BY times DESC, reason) AS reasons
    FROM (SELECT rollout_id, reason, count(*) AS times FROM dropped WHERE is_llm_call GROUP BY ALL)
    GROUP BY rollout_id
)
SELECT
    rollout.rollout_id, rollout.mode, rollout.status, rollout.group_id, rollout.run_id,
    CASE
        WHEN rollout.mode <> 'train' THEN 'it is a ' || rollout.mode || ' rollout'
        WHEN rollout.status IN ('queuing', 'requeuing') THEN 'it waits for a Runner'
        WHEN rollout.status IN ('preparing', 'running') THEN 'it is still running'
        WHEN final_trajectory.rollout_id IS NULL THEN 'it has ended; its trajectory is not assembled yet'
        WHEN finished < rollout.group_size
            THEN 'its group waits: ' || finished || ' of ' || rollout.group_size || ' rollouts are finished'
        WHEN usable.triplets IS NULL AND lost.reasons IS NULL
            THEN 'it ' || rollout.status || ' without any LLM call'
                || coalesce(' (' || final_trajectory.error_type || ')', '')
        WHEN usable.triplets IS NULL THEN 'none of its LLM calls is usable: ' || lost.reasons
        WHEN usable.rewarded = 0 THEN 'it has no reward'
        ELSE 'its group is complete and waits for a training step'
    END AS reason
FROM rollouts AS rollout
LEFT JOIN final_trajectory USING (rollout_id)
LEFT JOIN finished_in_group ON finished_in_group.group_id = coalesce(rollout.group_id, rollout.rollout_id)
LEFT JOIN usable ON usable.rollout_id = rollout.rollout_id AND usable.attempt_id = final_trajectory.attempt_id
LEFT JOIN lost ON lost.rollout_id = rollout.rollout_id
WHERE rollout.rollout_id NOT IN (SELECT rollout_id FROM consumed_raw)
