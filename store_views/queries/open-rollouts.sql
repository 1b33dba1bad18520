-- Ids of the rollouts of a run that are not over, in their order.
-- $run: the run.
-- $after = "": only ids after this one.
-- $limit = 1000: how many rows.
SELECT rollout_id
FROM rollouts
WHERE run_id = $run AND rollout_id > $after AND status NOT IN ('succeeded', 'failed', 'cancelled')
ORDER BY rollout_id
LIMIT $limit
