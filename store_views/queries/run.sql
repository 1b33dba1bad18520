-- What became of the rollouts of a run, in one row.
-- $run: the run.
SELECT count(DISTINCT hash(input_json)) AS tasks, count(DISTINCT coalesce(group_id, rollout_id)) AS groups, count(*) AS rollouts,
  count(*) FILTER (mode = 'train') AS train_rollouts,
  count(*) FILTER (status IN ('queuing', 'requeuing')) AS waiting,
  count(*) FILTER (status IN ('preparing', 'running')) AS running,
  count(*) FILTER (status = 'succeeded') AS succeeded, count(*) FILTER (status = 'failed') AS failed,
  count(*) FILTER (status = 'cancelled') AS cancelled,
  coalesce(sum(attempt_count), 0)::BIGINT AS attempts, count(*) FILTER (attempt_count > 1) AS retried,
  (SELECT coalesce(sum(rewarded), 0)::BIGINT FROM runs WHERE run_id = $run) AS rewarded,
  min(enqueued_unix_nano)::VARCHAR AS first_unix_nano, max(updated_unix_nano)::VARCHAR AS last_unix_nano
FROM rollouts WHERE run_id = $run
