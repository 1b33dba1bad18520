-- Every committed optimiser step. Nothing is collapsed: a step that was made twice shows as two rows.
-- Columns of `training_steps_raw`, and:
--   trajectory_count: how many trajectories the step consumed.
--   group_count: how many groups these make up.
--   triplet_count: how many of their LLM calls entered the batch.
--   seconds: how long the step took, in seconds.
SELECT
    step.* REPLACE (metrics::JSON AS metrics),
    coalesce(consumed.trajectory_count, 0) AS trajectory_count,
    coalesce(consumed.group_count, 0) AS group_count,
    coalesce(consumed.triplet_count, 0) AS triplet_count,
    (step.ended_unix_nano - step.started_unix_nano) / 1e9 AS seconds
FROM training_steps_raw AS step
LEFT JOIN (
    SELECT log_partition, log_offset, count(*) AS trajectory_count, count(DISTINCT group_id) AS group_count,
        sum(triplet_count) AS triplet_count
    FROM consumed_raw
    GROUP BY ALL
) AS consumed USING (log_partition, log_offset)
