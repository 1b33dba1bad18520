-- Every finished rollout that is not in `trained`, and why. With the rollouts in `trained` these are all finished ones.
-- What a step said counts for those it consumed; for others it is what is known so far.
-- Columns of `rollouts` and `not_trained_reasons`, and:
--   reason: why it was not trained on, in words, with the values that decided it.
WITH final_trajectory AS (
    SELECT rollout_id, attempt_id, group_id, error_type, error_message FROM trajectories_latest WHERE final
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
),
last_consumed AS (
    SELECT rollout_id, trainer_id, step, outcome, triplet_count, not_trained
    FROM consumed_raw
    QUALIFY row_number() OVER (PARTITION BY rollout_id ORDER BY log_offset DESC, item_index) = 1
),
excluded AS (
    SELECT rollout_id, first(entry.key ORDER BY entry.value DESC, entry.key) AS main_reason,
        string_agg(entry.value || ' ' || entry.key, ', ' ORDER BY entry.value DESC, entry.key) AS reasons
    FROM (SELECT rollout_id, unnest(map_entries(not_trained)) AS entry FROM last_consumed)
    WHERE entry.value > 0
    GROUP BY rollout_id
),
ended_run AS (
    SELECT run_id, arg_max(step, log_offset) AS step, arg_max(steps_planned, log_offset) AS steps_planned
    FROM training_steps_raw
    WHERE outcome <> 'discarded'
    GROUP BY run_id
    HAVING steps_planned > 0 AND step >= steps_planned
),
judged AS (
    SELECT
        rollout.rollout_id, rollout.mode, rollout.status, rollout.group_id, rollout.run_id, rollout.group_size,
        finished, lost.reasons AS lost_reasons, excluded.reasons AS excluded_reasons,
        consumed.trainer_id, consumed.step, consumed.outcome,
        ended_run.step AS last_step, ended_run.steps_planned, final_trajectory.error_type,
        final_trajectory.error_message,
        CASE
            WHEN consumed.rollout_id IS NULL THEN CASE
                WHEN rollout.mode <> 'train' THEN 'not_for_training'
                WHEN rollout.status = 'cancelled' THEN 'cancelled'
                WHEN final_trajectory.rollout_id IS NULL THEN 'not_assembled'
                WHEN usable.triplets IS NULL AND rollout.status = 'failed' THEN 'attempt_failed'
                WHEN usable.triplets IS NULL THEN 'no_calls'
                WHEN usable.rewarded = 0 AND rollout.status = 'failed' THEN 'attempt_failed'
                WHEN usable.rewarded = 0 THEN 'no_reward'
                WHEN ended_run.run_id IS NOT NULL THEN 'after_the_end'
                WHEN finished < rollout.group_size THEN 'group_incomplete'
                ELSE 'not_consumed'
            END
            WHEN consumed.triplet_count = 0 AND excluded.main_reason IS NOT NULL THEN
                CASE
                    WHEN rollout.status = 'failed' AND excluded.main_reason IN ('no_calls', 'no_reward')
                        THEN 'attempt_failed'
                    ELSE excluded.main_reason
                END
            WHEN consumed.outcome = 'discarded' THEN 'step_discarded'
            WHEN consumed.outcome = 'unchanged' THEN 'no_signal'
            WHEN rollout.status = 'failed' THEN 'attempt_failed'
            WHEN usable.triplets IS NULL THEN 'no_calls'
            ELSE 'no_weight'
        END AS reason_code
    FROM rollouts AS rollout
    LEFT JOIN final_trajectory USING (rollout_id)
    LEFT JOIN finished_in_group ON finished_in_group.group_id = coalesce(rollout.group_id, rollout.rollout_id)
    LEFT JOIN usable ON usable.rollout_id = rollout.rollout_id AND usable.attempt_id = final_trajectory.attempt_id
    LEFT JOIN lost ON lost.rollout_id = rollout.rollout_id
    LEFT JOIN last_consumed AS consumed ON consumed.rollout_id = rollout.rollout_id
    LEFT JOIN excluded ON excluded.rollout_id = rollout.rollout_id
    LEFT JOIN ended_run ON ended_run.run_id = rollout.run_id
    WHERE rollout.status IN ('succeeded', 'failed', 'cancelled')
        AND rollout.rollout_id NOT IN (SELECT rollout_id FROM trained)
)
SELECT
    rollout_id, mode, status, group_id, run_id, reason_code,
    coalesce(meaning, 'its calls had no weight') || coalesce(' (' || nullif(concat_ws('; ',
        'step ' || step || ' of ' || trainer_id || if(outcome = 'updated', '', ', ' || outcome)
            || coalesce(': ' || excluded_reasons, ''),
        CASE reason_code
            WHEN 'attempt_failed' THEN concat_ws(': ', error_type, left(error_message, 300))
            WHEN 'no_calls' THEN 'dropped: ' || lost_reasons
            WHEN 'not_for_training' THEN 'mode ' || mode
            WHEN 'group_incomplete' THEN finished || ' of ' || group_size || ' rollouts are finished'
            WHEN 'after_the_end' THEN 'step ' || last_step || ' of ' || steps_planned || ' is done'
        END
    ), '') || ')', '') AS reason,
    coalesce(next_step, 'See what its algorithm means by `' || reason_code || '`.') AS next_step
FROM judged
LEFT JOIN not_trained_reasons USING (reason_code)
