-- How many rows the raw tables have of each run, and the bytes of its large trajectories, which lie in files.
-- Rows that belong to no run are those of the empty name.
WITH of_rollout AS (
    SELECT rollout_id, count(*) AS row_count
    FROM (
        SELECT rollout_id FROM rollout_events
        UNION ALL SELECT rollout_id FROM rollout_states
        UNION ALL SELECT rollout_id FROM spans_raw
        UNION ALL SELECT rollout_id FROM attempts_opened_raw
        UNION ALL SELECT rollout_id FROM attempts_closed_raw
        UNION ALL SELECT rollout_id FROM trajectories_raw
        UNION ALL SELECT rollout_id FROM triplets_raw
        UNION ALL SELECT rollout_id FROM drops_raw
        UNION ALL SELECT rollout_id FROM rewards_raw
    )
    GROUP BY rollout_id
),
counted AS (
    SELECT coalesce(run_id, '') AS run_id, row_count
    FROM of_rollout
    LEFT JOIN (SELECT rollout_id, run_id FROM rollouts_latest) AS rollout USING (rollout_id)
    UNION ALL SELECT coalesce(run_id, ''), count(*) FROM training_steps_raw GROUP BY ALL
    UNION ALL SELECT coalesce(run_id, ''), count(*) FROM consumed_raw GROUP BY ALL
    UNION ALL SELECT coalesce(run_id, ''), count(*) FROM resources_raw GROUP BY ALL
    UNION ALL SELECT '', count(*) FROM task_requests_raw
    UNION ALL SELECT '', count(*) FROM workers_raw
    UNION ALL SELECT '', count(*) FROM deletions_raw
    UNION ALL SELECT '', count(*) FROM releases_raw
    UNION ALL SELECT '', count(*) FROM gate_reports_raw
    UNION ALL SELECT '', count(*) FROM dead_letters_raw
),
large AS (
    SELECT run_id, sum(size_bytes)::BIGINT AS large_bytes
    FROM (
        SELECT DISTINCT coalesce(run_id, '') AS run_id, payload_url, payload_size_bytes AS size_bytes
        FROM trajectories_raw
        WHERE payload_url IS NOT NULL
    )
    GROUP BY run_id
)
SELECT run_id, sum(row_count)::BIGINT AS row_count, coalesce(any_value(large_bytes), 0) AS large_bytes
FROM counted
LEFT JOIN large USING (run_id)
GROUP BY run_id
HAVING sum(row_count) > 0
ORDER BY row_count DESC, run_id
