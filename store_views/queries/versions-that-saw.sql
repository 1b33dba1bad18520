-- Versions of runs that learned from some rollouts: one rollout, those whose metadata have a value (a user, say), or a run's.
-- A version's weights come from those of the versions before it, so every later version of the run is among them.
-- A rollout whose calls had no weight counts, too, if its reward was part of a baseline or of a choice (`by_reward_alone`).
-- A run that was begun with the weights of another run or of a fork is not among them: ask for its rollouts as well.
-- $rollout: this rollout.
-- $key: name in the rollouts' metadata.
-- $value: its value there.
-- $of: rollouts of this run.
WITH meant AS (
    SELECT rollout_id FROM rollouts
    WHERE (
        $rollout::VARCHAR IS NOT NULL OR $key::VARCHAR IS NOT NULL OR $of::VARCHAR IS NOT NULL
    )
    AND ($rollout::VARCHAR IS NULL OR rollout_id = $rollout)
    AND ($key::VARCHAR IS NULL OR json_extract_string(metadata_json, '$."' || $key || '"') = $value)
    AND ($of::VARCHAR IS NULL OR run_id = $of)
),
used AS (
    SELECT run_id, step, rollout_id, bool_or(triplet_count > 0) AS is_trained FROM consumed_raw
    WHERE rollout_id IN (SELECT rollout_id FROM meant)
        AND (
            triplet_count > 0
            OR list_has_any(
                map_keys(not_trained),
                [
                    'no_signal', 'no_logprobs', 'empty', 'misaligned', 'too_long', 'stale', 'unknown_version',
                    'other_policy', 'other_temperature', 'other_sampling', 'rejected'
                ]
            )
        )
    GROUP BY run_id, step, rollout_id
),
published AS (
    SELECT step.run_id, step.step, made.version, step.resources_id, step.checkpoint_url
    FROM training_steps_raw AS step
    JOIN (SELECT resources_id, version FROM resources) AS made USING (resources_id)
)
SELECT
    published.run_id, published.version, published.resources_id,
    count(*) AS rollouts, count(*) FILTER (NOT used.is_trained) AS by_reward_alone, min(used.step) AS first_step, max(used.step) AS last_step, published.checkpoint_url
FROM published
JOIN used ON used.run_id = published.run_id AND used.step <= published.step
GROUP BY ALL
ORDER BY published.run_id, published.version
