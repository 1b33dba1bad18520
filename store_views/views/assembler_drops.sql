-- What the assembler dropped, of the latest revision of each trajectory. See `dropped` for all drops.
-- Columns of `drops_raw` and `trajectories`, and:
--   agent_name: agent that made the call; `agent` where nothing names one.
--   model: model that answered, whichever version of it.
--   model_version: its name as its span has it.
--   status: status of the rollout when the attempt was closed.
SELECT
    dropped.* EXCLUDE (item_index) REPLACE (
        CASE WHEN is_llm_call THEN coalesce(dropped.agent_name, 'agent') ELSE dropped.agent_name END AS agent_name,
        nullif(model_family(dropped.model), '') AS model
    ),
    nullif(dropped.model, '') AS model_version,
    trajectory.run_id, trajectory.mode, trajectory.group_id, trajectory.final, trajectory.rollout_status AS status,
    trajectory.source_partition
FROM drops_raw AS dropped
JOIN (
    SELECT log_partition, log_offset, rollout_id, run_id, mode, group_id, final, rollout_status, source_partition
    FROM trajectories_latest
) AS trajectory USING (log_partition, log_offset, rollout_id)
