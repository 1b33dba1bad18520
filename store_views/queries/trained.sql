-- How many rollouts and LLM calls a run learned from.
-- $run: the run.
SELECT coalesce(sum(rollouts), 0)::BIGINT AS rollouts, coalesce(sum(calls), 0)::BIGINT AS calls
FROM run_trained WHERE run_id = $run
