-- How many spans a rollout has.
-- $rollout: the rollout.
SELECT count(*) AS count FROM spans WHERE rollout_id = $rollout
