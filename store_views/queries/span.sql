-- All of one span; of longer texts the first million characters.
-- $rollout: its rollout.
-- $span: its id.
-- $partition: partition of `spans` that it lies in.
-- $offset: its offset there.
SELECT attempt_id, name, trace_id, status_message, start_unix_nano::VARCHAR AS start_unix_nano,
  end_unix_nano::VARCHAR AS end_unix_nano, left(attributes::VARCHAR, 1000000) AS attributes,
  left(events::VARCHAR, 1000000) AS events, left(links::VARCHAR, 1000000) AS links, scope_name,
  left(llm_request_json, 1000000) AS llm_request_json,
  left(llm_response_json, 1000000) AS llm_response_json,
  greatest(length(attributes::VARCHAR), length(llm_request_json), length(llm_response_json)) AS characters,
  llm_error_message, llm_http_status,
  log_partition, log_offset
FROM spans WHERE rollout_id = $rollout AND span_id = $span AND log_partition = $partition::INTEGER AND log_offset = $offset::BIGINT
