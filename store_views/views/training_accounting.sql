-- What training consumed: every trajectory of a consumed group once, none twice, no step repeated or skipped.
-- Columns:
--   steps: how many training steps were committed; discarded ones are not counted, for they are made again.
--   consumed_groups: how many groups these steps consumed.
--   consumed: how many trajectories they consumed, repetitions included.
--   in_consumed_groups: how many final trajectories the consumed groups have.
--   consumed_twice: how many attempts were consumed more than once.
--   without_trajectory: how many were consumed whose trajectory is not in the view.
--   steps_repeated: how many steps have a number that another step of the trainer has too.
--   steps_skipped: how many numbers were left out between a trainer's first and last step.
--   balanced: true where each trajectory was consumed exactly once and no step was repeated or skipped.
WITH consumed_group AS (SELECT DISTINCT group_id FROM consumed_raw),
step AS (
    SELECT trainer_id, count(*) AS steps, count(DISTINCT step) AS distinct_steps,
        max(step) - min(step) + 1 AS spanned_steps
    FROM training_steps_raw
    WHERE outcome NOT IN ('discarded', 'measured')
    GROUP BY trainer_id
)
SELECT
    *,
    consumed = in_consumed_groups AND consumed_twice = 0 AND steps_repeated = 0 AND steps_skipped = 0
        AND without_trajectory = 0 AS balanced
FROM (
    SELECT
        (SELECT coalesce(sum(steps), 0)::BIGINT FROM step) AS steps,
        (SELECT count(*) FROM consumed_group) AS consumed_groups,
        (SELECT count(*) FROM consumed_raw) AS consumed,
        (
            SELECT count(*) FROM trajectories_latest
            WHERE final AND coalesce(group_id, rollout_id) IN (SELECT group_id FROM consumed_group)
        ) AS in_consumed_groups,
        (
            SELECT count(*) FROM (SELECT 1 FROM consumed_raw GROUP BY rollout_id, attempt_id HAVING count(*) > 1)
        ) AS consumed_twice,
        (
            SELECT count(*) FROM consumed_raw
            ANTI JOIN trajectories_raw USING (rollout_id, attempt_id)
        ) AS without_trajectory,
        (SELECT coalesce(sum(steps - distinct_steps), 0)::BIGINT FROM step) AS steps_repeated,
        (SELECT coalesce(sum(spanned_steps - distinct_steps), 0)::BIGINT FROM step) AS steps_skipped
)
