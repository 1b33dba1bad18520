-- LLM calls of the assembled attempts of a run, by what became of them.
-- $run: the run.
SELECT fate, reason, sum(calls)::BIGINT AS count FROM calls_by_reason WHERE run_id = $run GROUP BY ALL ORDER BY count DESC
