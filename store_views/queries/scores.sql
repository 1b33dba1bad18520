-- The scores that people and judges gave to a rollout and to its calls, the latest first.
-- $rollout: the rollout.
SELECT name, value, comment, scored_by, key, compared_with, scored_span_id,
    scored_unix_nano::VARCHAR AS scored_unix_nano, match, span_id, log_partition, log_offset
FROM scores WHERE rollout_id = $rollout
ORDER BY scores.scored_unix_nano DESC, log_offset DESC
LIMIT 1000
