-- The code of why each finished rollout is not in `trained`, which `why_not_trained` puts into words. As quick when a run
-- is long: only groups of which something came lately are looked into, of others it is kept.
-- Columns of `reasons_settled`.
SELECT
    group_key, rollout_id, run_id, mode,
    CASE
        WHEN ended.run_id IS NOT NULL AND reason_code IN ('group_incomplete', 'not_consumed') THEN 'after_the_end'
        ELSE reason_code
    END AS reason_code
FROM (
    FROM reasons_settled ANTI JOIN groups_changed USING (group_key)
    UNION ALL BY NAME
    FROM reasons_unsettled
) AS known
LEFT JOIN (
    SELECT run_id
    FROM training_steps_raw
    WHERE outcome <> 'discarded'
    GROUP BY run_id
    HAVING arg_max(steps_planned, log_offset) > 0 AND arg_max(step, log_offset) >= arg_max(steps_planned, log_offset)
) AS ended USING (run_id)
