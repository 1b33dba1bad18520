-- Versions that answered the calls of a rollout, in the order of their first call. `:lineage` tells how each was made.
-- $rollout: the rollout.
SELECT model_version, count(*) AS calls, arg_min(span_id, start_unix_nano) AS span_id
FROM llm_calls WHERE rollout_id = $rollout AND model_version IS NOT NULL
GROUP BY model_version
ORDER BY min(start_unix_nano), model_version
