-- Every worker as it last reported, the last first.
-- $limit = 500: how many rows.
SELECT worker_id, kind, host, pid, status, len(rollout_ids) AS rollouts, rollout_ids[1] AS first_rollout,
  heartbeat_unix_nano::VARCHAR AS heartbeat_unix_nano, stats_json
FROM workers ORDER BY workers.heartbeat_unix_nano DESC LIMIT $limit
