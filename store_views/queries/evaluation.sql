-- Rollouts of an evaluation, one a row: model, task, sample, reward, tokens, cost, seconds, failed tools and refusals. A
-- rollout that failed, or ended without a reward, has none.
-- $run: the evaluation.
WITH asked AS (
    SELECT rollout_id, status, group_id, ended_unix_nano IS NOT NULL AS is_over,
        metadata_json->>'$.evaluation.model' AS model,
        (metadata_json->>'$.evaluation.task')::BIGINT AS task,
        (metadata_json->>'$.evaluation.sample')::BIGINT AS sample,
        left(input_json, 400) AS input_json
    FROM rollouts
    WHERE run_id = $run AND json_exists(metadata_json, '$.evaluation.model')
)
SELECT
    asked.*, got.rollout_id IS NOT NULL AS is_assembled, got.reward, used.calls, used.prompt_tokens, used.response_tokens, used.cost, used.seconds,
    called.policy_versions, coalesce(called.refusals, 0) AS refusals, coalesce(ran.tool_errors, 0) AS tool_errors
FROM asked
LEFT JOIN (
    SELECT rollout_id, any_value(reward) AS reward
    FROM trajectories_latest
    WHERE final AND rollout_id IN (SELECT rollout_id FROM asked)
    GROUP BY rollout_id
) AS got USING (rollout_id)
LEFT JOIN (
    SELECT rollout_id, count(*) AS calls, sum(prompt_tokens) AS prompt_tokens,
        sum(response_tokens) AS response_tokens,
        CASE WHEN count(*) FILTER (cost IS NULL AND error_message IS NULL) = 0 THEN coalesce(sum(cost), 0) END AS cost, sum(seconds) AS seconds
    FROM costs
    WHERE run_id = $run
    GROUP BY rollout_id
) AS used USING (rollout_id)
LEFT JOIN (
    SELECT rollout_id, list_sort(list(DISTINCT policy_version) FILTER (policy_version IS NOT NULL)) AS policy_versions,
        count(*) FILTER (finish_reason = 'content_filter' OR response_json->>'$.refusal' IS NOT NULL) AS refusals
    FROM llm_calls
    WHERE run_id = $run
    GROUP BY rollout_id
) AS called USING (rollout_id)
LEFT JOIN (
    SELECT rollout_id, count(*) FILTER (failed) AS tool_errors
    FROM tools
    WHERE run_id = $run
    GROUP BY rollout_id
) AS ran USING (rollout_id)
ORDER BY model, task, sample
