-- Rollouts that have ended well and whose last attempt has no score of a name yet, the first that ended first: the queue
-- of a judge. Of a group, all members are here or none.
-- $name: name of the score.
-- $run: only this run.
-- $mode: only train, val or test.
-- $whole_groups = false: only groups of which every rollout has ended, with the members that are scored, too.
-- $limit = 100: how many groups; a rollout without one is its own.
WITH ended AS (
    SELECT rollout_id, attempt_id, coalesce(group_id, rollout_id) AS group_id, group_size, status, input_json,
        closed_unix_nano,
        NOT EXISTS (
            FROM scores AS score
            WHERE score.rollout_id = trajectory.rollout_id AND score.attempt_id = trajectory.attempt_id
                AND score.name = $name AND score.scored_span_id IS NULL
        ) AS is_unjudged
    FROM trajectories AS trajectory
    WHERE final AND ($run::VARCHAR IS NULL OR run_id = $run) AND ($mode::VARCHAR IS NULL OR mode = $mode)
),
queue AS (
    SELECT *, count(*) OVER (PARTITION BY group_id) >= group_size AS is_whole,
        bool_or(is_unjudged AND status = 'succeeded') OVER (PARTITION BY group_id) AS has_unjudged,
        max(closed_unix_nano) OVER (PARTITION BY group_id) AS last_closed
    FROM ended
)
SELECT rollout_id, attempt_id, group_id, input_json, is_unjudged
FROM queue
WHERE status = 'succeeded' AND has_unjudged AND CASE WHEN $whole_groups THEN is_whole ELSE is_unjudged END
QUALIFY dense_rank() OVER (ORDER BY last_closed, group_id) <= $limit
ORDER BY last_closed, group_id, rollout_id
