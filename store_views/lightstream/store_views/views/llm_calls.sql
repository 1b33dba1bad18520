-- Every LLM call once, and its fate: triplet, dropped (with the reason) or pending. A call is known from its span where
-- the writer recorded it as one, else from the assembler, which reads the attributes of frameworks, or from
-- `unassembled`.
-- Columns of `call_spans` and `LlmCall`, and:
--   response_token_texts: what each response token says, where the proxy saw it.
--   fate: `triplet`, `dropped`, `pending` or `unaccounted`.
--   prompt_token_count: length of the prompt in tokens.
--   response_token_count: length of the response in tokens.
--   start_unix_nano: when the call began.
--   end_unix_nano: when the call ended.
--   seconds: how long the call took, in seconds.
--   log_partition: partition of the topic `spans` that the call's span lies in.
--   log_offset: offset of the span in that partition.
SELECT
    span.rollout_id, span.attempt_id, span.trace_id, span.span_id, span.response_id, span.choice_index,
    span.fate, span.reason, span.detail,
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
    len(recorded.llm_prompt_token_ids) AS prompt_token_count,
    len(recorded.llm_response_token_ids) AS response_token_count,
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
    rollout_id, attempt_id, trace_id, span_id, response_id, choice_index, fate, reason, detail,
    recorded.source_partition AS log_partition, recorded.source_offset AS log_offset, model AS response_model,
    policy_version, resources_id, sampling_json, prompt_token_ids, response_token_ids, response_logprobs,
    prompt_token_count, response_token_count,
    finish_reason, start_unix_nano, end_unix_nano, (end_unix_nano - start_unix_nano) / 1e9 AS seconds
FROM (
    SELECT *, 'triplet' AS fate, NULL AS reason, '' AS detail FROM triplets
    UNION ALL BY NAME
    SELECT *, 'dropped' AS fate FROM assembler_drops WHERE is_llm_call
) AS recorded
WHERE NOT EXISTS (
    FROM spans_raw AS span
    WHERE span.llm_choice_index IS NOT NULL
        AND span.rollout_id = recorded.rollout_id
        AND span.log_partition = recorded.source_partition AND span.log_offset = recorded.source_offset
)
UNION ALL BY NAME
SELECT
    rollout_id, attempt_id, trace_id, span_id, response_id, choice_index, 'dropped' AS fate, reason, detail,
    log_partition, log_offset
FROM unassembled
WHERE is_llm_call
