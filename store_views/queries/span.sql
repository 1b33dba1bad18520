-- All of one span but its messages; of longer texts the first million characters.
-- $rollout: its rollout.
-- $span: its id.
-- $partition: partition of `spans` that it lies in.
-- $offset: its offset there.
SELECT attempt_id, name, trace_id, status_message, start_unix_nano::VARCHAR AS start_unix_nano,
  end_unix_nano::VARCHAR AS end_unix_nano, left(attributes::VARCHAR, 1000000) AS attributes,
  left(events::VARCHAR, 1000000) AS events, left(links::VARCHAR, 1000000) AS links, scope_name,
  llm_request_json IS NOT NULL OR llm_response_json IS NOT NULL AS has_messages,
  greatest(length(attributes::VARCHAR), length(events::VARCHAR), length(links::VARCHAR)) AS characters,
  coalesce(
    attributes ->> '$."gen_ai.tool.call.arguments"', attributes ->> '$."tool_arguments"', attributes ->> '$."input.value"',
    attributes ->> '$."traceloop.entity.input"', attributes ->> '$."langfuse.observation.input"'
  ) AS input,
  coalesce(
    attributes ->> '$."gen_ai.tool.call.result"', attributes ->> '$."tool_response"', attributes ->> '$."output.value"',
    attributes ->> '$."traceloop.entity.output"', attributes ->> '$."langfuse.observation.output"'
  ) AS output,
  llm_error_message, llm_http_status,
  log_partition, log_offset
FROM spans WHERE rollout_id = $rollout AND span_id = $span AND log_partition = $partition::INTEGER AND log_offset = $offset::BIGINT
