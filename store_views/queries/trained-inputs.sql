-- How many tasks of an evaluation have an input that a run was trained on.
-- $evaluation: the evaluation's run.
-- $run: the run of the model.
SELECT count(DISTINCT metadata_json->>'$.evaluation.task') AS tasks
FROM rollouts
WHERE run_id = $evaluation AND input_json IN (
    SELECT input_json FROM rollouts
    WHERE rollout_id IN (SELECT rollout_id FROM trained WHERE run_id = $run)
)
