-- Versions of the resources of a run, the last first, and the reward of the rollouts that had them.
-- $run: the run.
-- $limit = 500: how many rows.
SELECT version.resources_id, version, model, checkpoint_url, created_unix_nano::VARCHAR AS created_unix_nano,
  resources::VARCHAR AS resources, made_with::VARCHAR AS made_with, used.rollouts, used.reward, log_partition, log_offset
FROM resources AS version
LEFT JOIN (SELECT resources_id, count(*) AS rollouts, avg(reward) AS reward FROM trajectories_latest
  WHERE final AND run_id = $run GROUP BY resources_id) AS used USING (resources_id)
WHERE run_id = $run ORDER BY log_offset DESC LIMIT $limit
