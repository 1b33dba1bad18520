-- Groups whose rollouts all have the same reward: of these, nothing is learned.
-- $run: only this run.
-- $limit = 100: how many rows.
SELECT
    run_id, group_id,
    count(*) AS rollouts,
    max(group_size) AS group_size,
    any_value(reward) AS reward,
    max(closed_at) AS closed_at,
    any_value(input_json) AS input_json
FROM trajectories
WHERE final AND mode = 'train' AND group_id IS NOT NULL
    AND ($run::VARCHAR IS NULL OR run_id = $run)
GROUP BY run_id, group_id
HAVING count(*) > 1 AND count(reward) = count(*) AND min(reward) = max(reward)
ORDER BY closed_at DESC, group_id
LIMIT $limit
