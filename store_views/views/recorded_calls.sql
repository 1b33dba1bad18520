-- Every LLM call once, and its fate: triplet, dropped (with the reason) or pending. A call is known from its span where
-- the writer recorded it as one, else from the assembler, which reads the attributes of frameworks, or from
-- `unassembled`. `llm_calls` has the same calls with what is known of their rollouts.
-- Columns of `call_spans` and `LlmCall`, and:
--   response_token_texts: what each response token says, where the proxy saw it.
--   fate: `triplet`, `dropped`, `pending` or `unaccounted`.
--   agent_name: agent that made the call, as far as that is known.
--   reward: reward of a call that is training data.
--   prompt_token_count: length of the prompt in tokens; where nobody recorded the ids, as the model server counted it.
--   cached_token_count: how many of these the model server had in its cache, where it says so.
--   response_token_count: length of the response in tokens; where nobody recorded the ids, as the model server counted
--     it: of all choices together, at the first of them.
--   error_message: error of the call, if it failed.
--   start_unix_nano: when the call began.
--   end_unix_nano: when the call ended.
--   seconds: how long the call took, in seconds.
--   log_partition: partition of the topic `spans` that the call's span lies in.
--   log_offset: offset of the span in that partition.
SELECT
    span.rollout_id, span.attempt_id, span.trace_id, span.span_id, span.response_id, span.choice_index,
    span.fate, span.reason, span.detail, span.call_index,
    coalesce(span.agent_name, recorded.agent_name) AS agent_name, span.reward,
    recorded.llm_requested_model AS requested_model, recorded.llm_response_model AS response_model,
    recorded.llm_policy_version AS policy_version,
    recorded.llm_resources_id AS resources_id, recorded.llm_sampling_json AS sampling_json,
    recorded.llm_prompt_token_ids AS prompt_token_ids, recorded.llm_response_token_ids AS response_token_ids,
    recorded.llm_response_logprobs AS response_logprobs,
    list_transform(
        range(1, len(recorded.llm_response_token_ends) + 1),
        lambda i: recorded.llm_response_tokens_text[
            coalesce(recorded.llm_response_token_ends[i - 1], 0) + 1 : recorded.llm_response_token_ends[i]
        ]
    ) AS response_token_texts,
    coalesce(len(recorded.llm_prompt_token_ids), recorded.prompt_tokens) AS prompt_token_count,
    recorded.cached_tokens AS cached_token_count,
    coalesce(
        len(recorded.llm_response_token_ids), CASE WHEN span.choice_index = 0 THEN recorded.response_tokens END
    ) AS response_token_count,
    recorded.llm_finish_reason AS finish_reason, recorded.llm_streamed AS streamed,
    recorded.llm_http_status AS http_status, recorded.llm_error_message AS error_message,
    recorded.llm_request_json AS request_json, recorded.llm_response_json AS response_json,
    recorded.start_unix_nano, recorded.end_unix_nano,
    (recorded.end_unix_nano - recorded.start_unix_nano) / 1e9 AS seconds,
    span.log_partition, span.log_offset
FROM call_spans AS span
JOIN spans_raw AS recorded
    ON recorded.log_partition = span.log_partition AND recorded.log_offset = span.log_offset
WHERE span.fate IN ('triplet', 'dropped', 'pending', 'unaccounted')
UNION ALL BY NAME
SELECT
    told.rollout_id, told.attempt_id, told.trace_id, told.span_id, told.response_id, told.choice_index,
    fate, reason, detail, call_index, told.agent_name, reward,
    told.source_partition AS log_partition, told.source_offset AS log_offset, model_version AS response_model,
    policy_version, resources_id, sampling_json, prompt_token_ids, response_token_ids, response_logprobs,
    coalesce(len(prompt_token_ids), span.prompt_tokens) AS prompt_token_count,
    span.cached_tokens AS cached_token_count,
    coalesce(
        len(response_token_ids), CASE WHEN told.choice_index = 0 THEN span.response_tokens END
    ) AS response_token_count,
    finish_reason,
    CASE WHEN span.status = 'error' THEN coalesce(nullif(span.status_message, ''), 'error') END AS error_message,
    coalesce(told.start_unix_nano, span.start_unix_nano) AS start_unix_nano,
    coalesce(told.end_unix_nano, span.end_unix_nano) AS end_unix_nano,
    (coalesce(told.end_unix_nano, span.end_unix_nano) - coalesce(told.start_unix_nano, span.start_unix_nano)) / 1e9
        AS seconds
FROM (
    SELECT * EXCLUDE (error_message), 'triplet' AS fate, NULL AS reason, '' AS detail FROM triplets
    UNION ALL BY NAME
    SELECT *, 'dropped' AS fate FROM assembler_drops WHERE is_llm_call
) AS told
LEFT JOIN (
    SELECT log_partition, log_offset, rollout_id, status, status_message, start_unix_nano, end_unix_nano, prompt_tokens,
        cached_tokens, response_tokens
    FROM spans_raw
) AS span
    ON span.rollout_id = told.rollout_id
        AND span.log_partition = told.source_partition AND span.log_offset = told.source_offset
WHERE NOT EXISTS (
    FROM spans_raw AS recorded
    WHERE recorded.llm_choice_index IS NOT NULL
        AND recorded.rollout_id = told.rollout_id
        AND recorded.log_partition = told.source_partition AND recorded.log_offset = told.source_offset
)
UNION ALL BY NAME
SELECT
    lost.rollout_id, lost.attempt_id, lost.trace_id, lost.span_id, lost.response_id, lost.choice_index,
    'dropped' AS fate, lost.reason, lost.detail, span.agent_name, span.read_model AS response_model,
    span.prompt_tokens AS prompt_token_count, span.cached_tokens AS cached_token_count,
    CASE WHEN lost.choice_index = 0 THEN span.response_tokens END AS response_token_count,
    CASE WHEN span.status = 'error' THEN coalesce(nullif(span.status_message, ''), 'error') END AS error_message,
    span.start_unix_nano, span.end_unix_nano, (span.end_unix_nano - span.start_unix_nano) / 1e9 AS seconds,
    lost.log_partition, lost.log_offset
FROM unassembled AS lost
JOIN spans_raw AS span ON span.log_partition = lost.log_partition AND span.log_offset = lost.log_offset
WHERE lost.is_llm_call
