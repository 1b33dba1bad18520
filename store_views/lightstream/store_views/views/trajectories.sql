-- Every assembled attempt, in its latest revision.
-- Columns of `trajectories_raw`, and:
--   final: true for the trajectory that counts for its rollout: of the last attempt that ended it.
SELECT raw.* REPLACE (latest.final AS final)
FROM trajectories_raw AS raw
JOIN (SELECT log_partition, log_offset, rollout_id, attempt_id, final FROM trajectories_latest) AS latest
    USING (log_partition, log_offset, rollout_id, attempt_id)
