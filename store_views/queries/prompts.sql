-- Prompts that a search (`APO`) measured, the best first.
-- $run: the run.
SELECT prompt, parent, critique, template, score, tasks, measurements FROM prompts WHERE run_id = $run
ORDER BY score DESC NULLS LAST, prompt
