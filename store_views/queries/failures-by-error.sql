-- Attempts that did not succeed, by the error that ended them.
-- $run: only this run.
-- $limit = 100: how many rows.
SELECT
    run_id, status, error_type,
    left(error_message, 200) AS error,
    count(*) AS attempts,
    count(DISTINCT rollout_id) AS rollouts,
    any_value(rollout_id) AS example
FROM attempts
WHERE status NOT IN ('succeeded', 'preparing', 'running')
    AND ($run::VARCHAR IS NULL OR run_id = $run)
GROUP BY ALL
ORDER BY attempts DESC, error
LIMIT $limit
