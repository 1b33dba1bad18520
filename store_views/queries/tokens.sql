-- Tokens and rewards of the LLM call of a span, by choice.
-- $rollout: its rollout.
-- $span: its id.
SELECT call_index, span_id, prompt_token_ids, response_token_ids, response_logprobs, response_mask, reward,
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
