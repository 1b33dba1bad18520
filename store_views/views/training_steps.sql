-- Every committed optimiser step. Nothing is collapsed: a step that was made twice shows as two rows.
-- Columns of `training_steps_raw`, and:
--   policy_version: version of the policy that the step started from; NULL where its resources are unknown.
--   trajectory_count: how many trajectories the step consumed.
--   group_count: how many groups these make up.
--   triplet_count: how many of their LLM calls entered the batch with a weight.
--   seconds: how long the step took, in seconds.
SELECT
    step.*,
    coalesce(
        last_value(made.version IGNORE NULLS) OVER (
            PARTITION BY step.run_id
            ORDER BY step.log_partition, step.log_offset
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ),
        initial.version
    ) AS policy_version,
    coalesce(consumed.trajectory_count, 0) AS trajectory_count,
    coalesce(consumed.group_count, 0) AS group_count,
    coalesce(consumed.triplet_count, 0) AS triplet_count,
    (step.ended_unix_nano - step.started_unix_nano) / 1e9 AS seconds
FROM training_steps_raw AS step
LEFT JOIN (SELECT resources_id, version FROM resources) AS made USING (resources_id)
LEFT JOIN (SELECT run_id, min(version) AS version FROM resources GROUP BY run_id) AS initial
    ON initial.run_id = step.run_id
LEFT JOIN (
    SELECT log_partition, log_offset, count(*) AS trajectory_count, count(DISTINCT group_id) AS group_count,
        sum(triplet_count)::BIGINT AS triplet_count
    FROM consumed_raw
    GROUP BY ALL
) AS consumed
    ON consumed.log_partition = step.log_partition AND consumed.log_offset = step.log_offset
