-- The groups of a training step and their rewards.
-- $run: the run.
-- $step: the step.
SELECT used.group_id, count(*) AS rollouts, count(*) FILTER (used.triplet_count > 0) AS trained, avg(used.reward) AS reward,
  stddev_pop(used.reward) AS deviation, min(used.reward) AS low, max(used.reward) AS high,
  any_value(left(input_json, 300)) AS input_json
FROM consumed AS used LEFT JOIN (
  SELECT rollout_id, input_json FROM rollouts
  WHERE rollout_id IN (SELECT rollout_id FROM consumed_raw WHERE run_id = $run AND step = $step::BIGINT)
) USING (rollout_id)
WHERE used.run_id = $run AND used.step = $step::BIGINT
GROUP BY used.group_id ORDER BY reward NULLS FIRST, used.group_id
