-- Every LLM call that asked for a release, with its arm, reward, cost and time. A call that the candidate lost has the arm
-- `candidate`, and says in `release_fallback` why the stable model answered it.
-- Columns of `spans`, `llm_calls` and `costs`, and:
--   reward: reward of the call; without one, that of its attempt.
SELECT
    span.release, span.release_arm, span.release_model, span.release_key, span.release_fallback,
    span.rollout_id, span.attempt_id, span.trace_id, span.span_id, span.llm_response_id AS response_id,
    span.llm_choice_index AS choice_index, span.llm_http_status AS http_status,
    span.llm_error_message AS error_message, coalesce(call.reward, attempt.reward) AS reward, cost.cost,
    call.prompt_token_count, call.response_token_count,
    (span.end_unix_nano - span.start_unix_nano) / 1e9 AS seconds,
    span.start_unix_nano, span.end_unix_nano, span.log_partition, span.log_offset
FROM spans AS span
LEFT JOIN llm_calls AS call
    ON call.log_partition = span.log_partition AND call.log_offset = span.log_offset
LEFT JOIN costs AS cost
    ON cost.log_partition = span.log_partition AND cost.log_offset = span.log_offset
LEFT JOIN (SELECT rollout_id, attempt_id, reward FROM trajectories_latest) AS attempt
    ON attempt.rollout_id = span.rollout_id AND attempt.attempt_id = span.attempt_id
WHERE span.release IS NOT NULL
