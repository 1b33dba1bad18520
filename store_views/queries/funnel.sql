-- From enqueued work to training data, stage by stage, with where the rest went.
-- $run: only this run.
SELECT run_id, stage, count, reason
FROM funnel
WHERE $run::VARCHAR IS NULL OR run_id = $run
