-- Reward, time and outcome of each training step.
-- $run: only this run.
SELECT
    run_id, trainer_id, step, outcome, policy_version,
    metrics['reward/mean'] AS reward_mean,
    trajectory_count, triplet_count, seconds, ended_at
FROM training_steps
WHERE $run::VARCHAR IS NULL OR run_id = $run
ORDER BY run_id, trainer_id, step
