-- Counts of the records about a rollout, and of its group's trajectories: while they stay the same, so does the rollout.
-- $rollout: the rollout.
SELECT
    (SELECT count(*) FROM spans_raw WHERE rollout_id = $rollout) AS spans,
    (SELECT count(*) FROM trajectories_raw WHERE rollout_id = $rollout) AS trajectories,
    (SELECT count(*) FROM consumed_raw WHERE rollout_id = $rollout) AS consumed,
    (
        SELECT count(*) FROM trajectories_raw AS trajectory
        JOIN (SELECT group_id, run_id FROM rollouts_latest WHERE rollout_id = $rollout) USING (group_id, run_id)
    ) AS of_group
