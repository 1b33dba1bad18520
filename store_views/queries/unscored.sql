-- Rollouts that ended and that nobody has scored yet, the last enqueued first: the queue of people who judge. The last
-- row's `enqueued_unix_nano` and `rollout_id` name the next page.
-- $run: only this run.
-- $mode: only train, val or test.
-- $nanos: only those enqueued before this time, in nanoseconds since 1970, or at it and with a lesser id than `id`.
-- $id: see `nanos`.
-- $limit = 100: how many rows.
SELECT rollout_id, run_id, mode, status, left(input_json, 400) AS input_json,
    enqueued_unix_nano::VARCHAR AS enqueued_unix_nano
FROM rollouts AS rollout
WHERE status IN ('succeeded', 'failed') AND ($run::VARCHAR IS NULL OR run_id = $run)
    AND ($mode::VARCHAR IS NULL OR mode = $mode)
    AND ($nanos::BIGINT IS NULL OR (enqueued_unix_nano, rollout_id) < ($nanos::BIGINT, $id::VARCHAR))
    AND NOT EXISTS (
        FROM spans_raw AS span
        WHERE span.rollout_id = rollout.rollout_id AND span.scope_name = 'lightstream.feedback'
    )
ORDER BY rollout.enqueued_unix_nano DESC, rollout_id DESC
LIMIT $limit
