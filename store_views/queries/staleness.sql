-- How many versions the policy had moved on when a step trained on its calls, by step.
-- $run: only this run.
SELECT
    run_id, trainer_id, step,
    count(*) AS calls,
    avg(staleness) AS staleness_mean,
    max(staleness) AS staleness_max
FROM consumed_calls
WHERE staleness IS NOT NULL AND ($run::VARCHAR IS NULL OR run_id = $run)
GROUP BY ALL
ORDER BY run_id, trainer_id, step
