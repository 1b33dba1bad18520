-- How many versions the policy had moved on when a step trained on its calls, by step.
-- $run: only this run.
SELECT
    consumed.run_id, consumed.trainer_id, consumed.step,
    count(*) AS calls,
    avg(training_steps.policy_version - triplets.policy_version) AS staleness_mean,
    max(training_steps.policy_version - triplets.policy_version) AS staleness_max
FROM consumed
JOIN training_steps USING (log_partition, log_offset)
JOIN triplets USING (rollout_id, attempt_id)
WHERE triplets.policy_version IS NOT NULL
    AND training_steps.policy_version IS NOT NULL
    AND ($run::VARCHAR IS NULL OR consumed.run_id = $run)
GROUP BY ALL
ORDER BY consumed.run_id, consumed.trainer_id, consumed.step
