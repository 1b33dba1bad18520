-- How a version was made: the steps up to it, each with its window of traffic, its rollouts, their rewards, who gave these,
-- and the gate's last report on its version.
-- $run: the run.
-- $version: the version; by default the newest.
WITH published AS (
    SELECT step.step, made.version
    FROM (SELECT step, resources_id FROM training_steps_raw WHERE run_id = $run) AS step
    JOIN (SELECT resources_id, version FROM resources) AS made USING (resources_id)
),
used AS (
    SELECT step, rollout_id, attempt_id, revision, triplet_count FROM consumed_raw WHERE run_id = $run
),
judged AS (
    SELECT rollout_id, attempt_id, revision, list_sort(list(DISTINCT name)) AS names
    FROM rewards_raw
    WHERE rollout_id IN (SELECT rollout_id FROM used WHERE triplet_count > 0)
    GROUP BY ALL
),
scored AS (
    SELECT rollout_id, attempt_id, revision, any_value(reward) AS reward
    FROM trajectories_raw
    WHERE rollout_id IN (SELECT rollout_id FROM used WHERE triplet_count > 0)
    GROUP BY ALL
),
scorers AS (
    SELECT used.step, list_sort(list(DISTINCT score.scored_by)) AS names
    FROM used
    JOIN scores AS score USING (rollout_id, attempt_id)
    WHERE used.triplet_count > 0 AND score.scored_by <> ''
    GROUP BY ALL
),
reports AS (
    SELECT candidate, arg_max(report_id, log_offset) AS report_id, arg_max(outcome, log_offset) AS outcome
    FROM gate_reports
    GROUP BY candidate
),
of_step AS (
    SELECT used.step, count(*) FILTER (triplet_count > 0) AS trained, count(*) FILTER (triplet_count = 0) AS not_trained,
        avg(scored.reward) AS reward_mean,
        list_sort(list_distinct(flatten(list(judged.names) FILTER (judged.names IS NOT NULL)))) AS reward_names
    FROM used
    LEFT JOIN scored USING (rollout_id, attempt_id, revision)
    LEFT JOIN judged USING (rollout_id, attempt_id, revision)
    GROUP BY ALL
)
SELECT
    step.step, published.version, step.outcome, step.window_number,
    step.window_start_at, step.window_end_at,
    coalesce(of_step.trained, 0) AS trained, coalesce(of_step.not_trained, 0) AS not_trained,
    of_step.reward_mean, of_step.reward_names, coalesce(scorers.names, []) AS scored_by,
    reports.outcome AS gate_outcome, reports.report_id, step.window_left_out, step.checkpoint_url
FROM training_steps AS step
LEFT JOIN published ON published.step = step.step AND step.resources_id IS NOT NULL
LEFT JOIN of_step ON of_step.step = step.step
LEFT JOIN scorers ON scorers.step = step.step
LEFT JOIN reports ON reports.candidate = $run || '@' || published.version::VARCHAR
WHERE step.run_id = $run AND step.outcome IN ('updated', 'unchanged')
    AND step.step <= (
        SELECT max(step) FROM published WHERE $version::BIGINT IS NULL OR version = $version
    )
ORDER BY step.step
