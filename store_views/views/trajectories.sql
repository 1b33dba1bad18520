-- Every assembled attempt, in its latest revision.
-- Columns of `trajectories_raw`, and:
--   final: true for the trajectory that counts for its rollout: of the last attempt that ended it.
--   agent_name: agent that made its LLM calls, or several (`planner, writer`); `agent` where nothing names one.
--   model: model that answered them, whichever version of it, or several; empty where it has no call.
--   seconds: seconds from the begin of the attempt to its end.
SELECT
    raw.* REPLACE (latest.final AS final), latest.agent_name, latest.model,
    (raw.closed_unix_nano - raw.opened_unix_nano) / 1e9 AS seconds
FROM trajectories_raw AS raw
JOIN (SELECT log_partition, log_offset, rollout_id, attempt_id, final, agent_name, model FROM trajectories_latest) AS latest
    USING (log_partition, log_offset, rollout_id, attempt_id)
