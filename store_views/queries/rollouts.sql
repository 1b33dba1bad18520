-- Rollouts, the last enqueued first, with reward, step, or the reason why they were not trained on. The last row's
-- `enqueued_unix_nano` and `rollout_id` name the next page.
-- $run: only this run.
-- $status: only those of this status.
-- $mode: only train, val or test.
-- $group: only this group.
-- $text: only those whose id or task has this text.
-- $reason: only those that were not trained on for this reason (a code), or `trained`.
-- $step: only those that this step consumed.
-- $nanos: only those enqueued before this time, in nanoseconds since 1970, or at it and with a lesser id than `id`.
-- $id: see `nanos`.
-- $limit = 100: how many rows.
WITH page AS (
    SELECT rollout_id, run_id, mode, status, group_id, attempt_count, left(input_json, 400) AS input_json,
        enqueued_unix_nano, seconds
    FROM rollouts
    WHERE ($run::VARCHAR IS NULL OR run_id = $run)
        AND ($status::VARCHAR IS NULL OR status = $status)
        AND ($mode::VARCHAR IS NULL OR mode = $mode)
        AND ($group::VARCHAR IS NULL OR coalesce(group_id, rollout_id) = $group)
        AND ($text::VARCHAR IS NULL OR contains(rollout_id, $text) OR contains(lower(input_json), lower($text)))
        AND ($nanos::BIGINT IS NULL OR (enqueued_unix_nano, rollout_id) < ($nanos::BIGINT, $id::VARCHAR))
        AND ($reason::VARCHAR IS NULL OR rollout_id IN (  -- where $reason is given
            SELECT rollout_id FROM consumed_raw  -- where $reason is given
            WHERE $reason = 'trained' AND triplet_count > 0 AND outcome = 'updated'  -- where $reason is given
            UNION ALL SELECT rollout_id FROM reason_codes WHERE reason_code = $reason  -- where $reason is given
        ))  -- where $reason is given
        AND ($step::BIGINT IS NULL OR rollout_id IN (  -- where $step is given
            SELECT rollout_id FROM consumed_raw  -- where $step is given
            WHERE step = $step::BIGINT AND ($run::VARCHAR IS NULL OR run_id = $run)  -- where $step is given
        ))  -- where $step is given
    ORDER BY enqueued_unix_nano DESC, rollout_id DESC
    LIMIT $limit
)
SELECT
    page.* REPLACE (page.enqueued_unix_nano::VARCHAR AS enqueued_unix_nano), made.reward, made.call_count,
    used.step, why.reason_code
FROM page
LEFT JOIN (
    SELECT rollout_id, any_value(reward) AS reward, any_value(call_count) AS call_count
    FROM trajectories_latest
    WHERE final AND rollout_id IN (SELECT rollout_id FROM page)
    GROUP BY rollout_id
) AS made USING (rollout_id)
LEFT JOIN (
    SELECT rollout_id, max(step) AS step
    FROM consumed_raw
    WHERE triplet_count > 0 AND outcome = 'updated' AND rollout_id IN (SELECT rollout_id FROM page)
    GROUP BY rollout_id
) AS used USING (rollout_id)
LEFT JOIN (
    SELECT rollout_id, reason_code FROM reason_codes WHERE rollout_id IN (SELECT rollout_id FROM page)
) AS why USING (rollout_id)
ORDER BY page.enqueued_unix_nano DESC, page.rollout_id DESC
