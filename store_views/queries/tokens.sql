-- Tokens and rewards of the LLM call of a span, by choice, and how its reward compares with its group's.
-- $rollout: its rollout.
-- $span: its id.
WITH finished AS (
  SELECT rollout_id, run_id, mode, coalesce(group_id, rollout_id) AS group_id, reward FROM trajectories_latest WHERE final
), own AS (SELECT run_id, mode, group_id, reward FROM finished WHERE rollout_id = $rollout),
compared AS (
  SELECT own.reward - if(min(finished.reward) = max(finished.reward), min(finished.reward), avg(finished.reward)) AS above_mean,
    stddev_samp(finished.reward) AS deviation, any_value(mode) AS mode
  FROM finished JOIN own USING (run_id, mode, group_id) GROUP BY own.reward
), made AS (
  SELECT arg_min(made_with, version)::JSON ->> '$.options' AS options
  FROM resources WHERE run_id = (SELECT any_value(run_id) FROM own) AND made_with::VARCHAR <> '{}'
)
SELECT (SELECT above_mean FROM compared) AS above_mean, (SELECT deviation FROM compared) AS deviation,
  (SELECT above_mean / (deviation + 1e-6) FROM compared, made WHERE mode = 'train' AND options ->> '$.advantage' = 'grpo'
    AND options ->> '$.advantage_per' = 'rollout' AND options ->> '$.reward_missing' = 'exclude'
    AND options ->> '$.reward_dimensions' = '{}' AND options ->> '$.reward_model' IS NULL
    AND options ->> '$.kl_reward_coefficient' = '0.0') AS divided,
  call_index, span_id, prompt_token_ids, response_token_ids, response_logprobs, response_mask, reward,
  policy_version, policy_version_runs, finish_reason, log_partition, log_offset, said.texts
FROM triplets
LEFT JOIN (
  SELECT llm_choice_index AS choice_index, any_value(list_transform(
    range(1, len(llm_response_token_ends) + 1),
    lambda i: llm_response_tokens_text[coalesce(llm_response_token_ends[i - 1], 0) + 1 : llm_response_token_ends[i]]
  )) AS texts
  FROM spans_raw WHERE rollout_id = $rollout AND span_id = $span GROUP BY llm_choice_index
) AS said USING (choice_index)
WHERE rollout_id = $rollout AND span_id = $span ORDER BY choice_index
