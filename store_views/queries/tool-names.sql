-- The names of the tools that a run used.
-- $run: the run.
SELECT DISTINCT tool_name FROM spans_raw
WHERE tool_name IS NOT NULL AND rollout_id IN (SELECT rollout_id FROM rollouts_latest WHERE run_id = $run)
ORDER BY tool_name
LIMIT 200
