-- Rollouts of an evaluation, one a row: model, task, sample, reward, tokens and cost. A rollout that failed, or ended
-- without a reward, has none.
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
    asked.*, got.rollout_id IS NOT NULL AS is_assembled, got.reward, used.calls, used.prompt_tokens, used.response_tokens, used.cost
FROM asked
LEFT JOIN (
    SELECT rollout_id, any_value(reward) AS reward
    FROM trajectories_latest
    WHERE final AND rollout_id IN (SELECT rollout_id FROM asked)
    GROUP BY rollout_id
) AS got USING (rollout_id)
LEFT JOIN (
    SELECT rollout_id, count(*) AS calls, sum(prompt_tokens) AS prompt_tokens,
        sum(response_tokens) AS response_tokens, sum(cost) AS cost
    FROM costs
    WHERE run_id = $run
    GROUP BY rollout_id
) AS used USING (rollout_id)
ORDER BY model, task, sample
