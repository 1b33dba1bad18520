-- Every training step of a run, with all its metrics.
-- $run: the run.
SELECT step, outcome, coalesce(cause, '') AS cause, trainer_id, steps_planned, resources_id, policy_version, trajectory_count, group_count,
  triplet_count, seconds, ended_unix_nano::VARCHAR AS ended_unix_nano, metrics, log_partition, log_offset
FROM training_steps WHERE run_id = $run ORDER BY log_offset
