-- Why finished rollouts of the groups in `groups_changed` are not in `trained`, as far as their own records and their
-- group's tell: what `reasons_settled` will say of them. See `reason_codes` for all rollouts.
-- Columns of `reasons_settled`.
WITH rollout AS MATERIALIZED (
    SELECT rollout_id, run_id, mode, status, group_size, coalesce(group_id, rollout_id) AS group_key
    FROM rollouts_latest
    WHERE status IN ('succeeded', 'failed', 'cancelled')
        AND coalesce(group_id, rollout_id) IN (SELECT group_key FROM groups_changed)
),
final_trajectory AS MATERIALIZED (
    SELECT rollout_id, coalesce(group_id, rollout_id) AS group_key, triplets, rewarded_triplets
    FROM trajectories_latest
    WHERE final AND coalesce(group_id, rollout_id) IN (SELECT group_key FROM groups_changed)
),
finished_in_group AS (SELECT group_key, count(*) AS finished FROM final_trajectory GROUP BY ALL),
consumed AS MATERIALIZED (
    SELECT rollout_id, log_offset, item_index, outcome, triplet_count, not_trained
    FROM consumed_raw
    WHERE rollout_id IN (SELECT rollout_id FROM rollout)
),
last_consumed AS (
    SELECT rollout_id, outcome, triplet_count,
        list_sort(list_transform(
            list_filter(map_entries(not_trained), lambda entry: entry.value > 0),
            lambda entry: (-entry.value, entry.key)
        ))[1][2] AS main_reason
    FROM consumed
    QUALIFY row_number() OVER (PARTITION BY rollout_id ORDER BY log_offset DESC, item_index) = 1
)
SELECT
    group_key, rollout.rollout_id, run_id, mode,
    CASE
        WHEN consumed.rollout_id IS NULL THEN CASE
            WHEN mode <> 'train' THEN 'not_for_training'
            WHEN status = 'cancelled' THEN 'cancelled'
            WHEN final_trajectory.rollout_id IS NULL THEN 'not_assembled'
            WHEN triplets = 0 AND status = 'failed' THEN 'attempt_failed'
            WHEN triplets = 0 THEN 'no_calls'
            WHEN rewarded_triplets = 0 AND status = 'failed' THEN 'attempt_failed'
            WHEN rewarded_triplets = 0 THEN 'no_reward'
            WHEN finished < group_size THEN 'group_incomplete'
            ELSE 'not_consumed'
        END
        WHEN triplet_count = 0 AND main_reason IS NOT NULL THEN
            if(status = 'failed' AND main_reason IN ('no_calls', 'no_reward'), 'attempt_failed', main_reason)
        WHEN outcome = 'discarded' THEN 'step_discarded'
        WHEN outcome = 'unchanged' THEN 'step_unchanged'
        WHEN status = 'failed' THEN 'attempt_failed'
        WHEN coalesce(triplets, 0) = 0 THEN 'no_calls'
        ELSE 'no_weight'
    END AS reason_code
FROM rollout
LEFT JOIN (SELECT rollout_id, triplets, rewarded_triplets FROM final_trajectory) AS final_trajectory
    ON final_trajectory.rollout_id = rollout.rollout_id
LEFT JOIN finished_in_group USING (group_key)
LEFT JOIN last_consumed AS consumed ON consumed.rollout_id = rollout.rollout_id
WHERE rollout.rollout_id NOT IN (SELECT rollout_id FROM consumed WHERE triplet_count > 0 AND outcome = 'updated')
