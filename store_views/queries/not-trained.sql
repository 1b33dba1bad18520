-- Rollouts of a run that were not trained on, by reason, with what to do about it.
-- $run: the run.
SELECT reason_code, count, coalesce(meaning, 'its algorithm calls it ' || reason_code) AS meaning,
  coalesce(next_step, 'See what its algorithm means by that.') AS next_step, example
FROM (SELECT reason_code, count(*) AS count, max(rollout_id) AS example FROM reason_codes
  WHERE run_id = $run AND mode = 'train' GROUP BY reason_code)
LEFT JOIN not_trained_reasons USING (reason_code) ORDER BY count DESC
