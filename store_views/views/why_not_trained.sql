-- Every finished rollout that is not in `trained`, and why. With the rollouts in `trained` these are all finished ones.
-- What a step said counts for those it consumed; for others it is what is known so far.
-- Columns of `rollouts`, `reason_codes` and `not_trained_reasons`, and:
--   reason: why it was not trained on, in words, with the values that decided it.
WITH finished_in_group AS (
    SELECT coalesce(group_id, rollout_id) AS group_key, count(*) AS finished
    FROM trajectories_latest
    WHERE final
    GROUP BY ALL
),
last_consumed AS (
    SELECT rollout_id, group_id AS group_key, trainer_id, step, outcome, not_trained
    FROM consumed_raw
    QUALIFY row_number() OVER (PARTITION BY rollout_id, group_id ORDER BY log_offset DESC, item_index) = 1
),
ended_run AS (
    SELECT run_id, arg_max(step, log_offset) AS last_step, arg_max(steps_planned, log_offset) AS steps_planned
    FROM training_steps_raw
    WHERE outcome <> 'discarded'
    GROUP BY run_id
)
SELECT
    rollout_id, mode, status, group_id, run_id, group_key, reason_code,
    coalesce(meaning, 'its calls had no weight') || coalesce(' (' || nullif(concat_ws('; ',
        'step ' || step || ' of ' || trainer_id || if(outcome = 'updated', '', ', ' || outcome)
            || coalesce(': ' || excluded, ''),
        CASE reason_code
            WHEN 'attempt_failed' THEN concat_ws(': ', error_type, left(error_message, 300))
            WHEN 'no_calls' THEN 'dropped: ' || lost
            WHEN 'not_for_training' THEN 'mode ' || mode
            WHEN 'group_incomplete' THEN finished || ' of ' || group_size || ' rollouts are finished'
            WHEN 'after_the_end' THEN 'step ' || last_step || ' of ' || steps_planned || ' is done'
        END
    ), '') || ')', '') AS reason,
    coalesce(next_step, 'See what its algorithm means by `' || reason_code || '`.') AS next_step
FROM (
    SELECT
        code.rollout_id, rollout.mode, rollout.status, rollout.group_id, rollout.run_id, rollout.group_size,
        code.group_key, code.reason_code, finished, last_step, steps_planned, error_type, error_message,
        consumed.trainer_id, consumed.step, consumed.outcome,
        -- Most frequent first.
        nullif(array_to_string(list_transform(list_sort(list_transform(
            list_filter(map_entries(not_trained), lambda entry: entry.value > 0),
            lambda entry: (-entry.value, entry.key)
        )), lambda entry: -entry[1] || ' ' || entry[2]), ', '), '') AS excluded,
        nullif(array_to_string(list_transform(list_sort(list_transform(
            map_entries(dropped), lambda entry: (-entry.value, entry.key)
        )), lambda entry: -entry[1] || ' ' || entry[2]), ', '), '') AS lost
    FROM reason_codes AS code
    JOIN (SELECT rollout_id, mode, status, group_id, run_id, group_size FROM rollouts_latest) AS rollout
        ON rollout.rollout_id = code.rollout_id
    LEFT JOIN (
        SELECT rollout_id, error_type, error_message, dropped FROM trajectories_latest WHERE final
    ) AS final_trajectory ON final_trajectory.rollout_id = code.rollout_id
    LEFT JOIN finished_in_group ON finished_in_group.group_key = code.group_key
    LEFT JOIN last_consumed AS consumed
        ON consumed.rollout_id = code.rollout_id AND consumed.group_key = code.group_key
    LEFT JOIN ended_run ON ended_run.run_id = rollout.run_id
)
LEFT JOIN not_trained_reasons USING (reason_code)
