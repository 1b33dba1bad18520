-- The tree of the spans of a rollout. Times are microseconds since the first of them, whose row alone has `origin`, in
-- nanoseconds since 1970. `error` is the begin of the message of one that failed.
-- $rollout: the rollout.
WITH mine AS (
  SELECT span_id, parent_id, name, status, start_unix_nano, end_unix_nano,
    CASE
      WHEN is_llm_call THEN 'LLM'
      WHEN has_reward THEN 'reward'
      WHEN tool_name IS NOT NULL THEN 'tool'
      WHEN role IN ('agent', 'invoke_agent', 'create_agent') THEN 'agent'
      WHEN role IN ('retriever', 'retrieval', 'embedding', 'reranker', 'chain', 'guardrail', 'evaluator') THEN role
    END AS kind,
    CASE WHEN status = 'error' OR llm_error_message IS NOT NULL
      THEN left(coalesce(nullif(status_message, ''), llm_error_message, ''), 200) END AS error,
    log_partition, log_offset, min(start_unix_nano) FILTER (start_unix_nano > 0) OVER () AS origin
  FROM (
    SELECT *, lower(coalesce(
      attributes ->> '$."openinference.span.kind"', attributes ->> '$."langfuse.observation.type"',
      attributes ->> '$."traceloop.span.kind"', attributes ->> '$."gen_ai.operation.name"'
    )) AS role
    FROM spans WHERE rollout_id = $rollout
  )
), timed AS (
  SELECT * EXCLUDE (start_unix_nano, end_unix_nano),
    CASE WHEN start_unix_nano > 0 THEN (start_unix_nano - origin) / 1e3 ELSE 0 END AS start,
    CASE WHEN end_unix_nano > 0 THEN (end_unix_nano - origin) / 1e3 END AS end
  FROM mine
)
SELECT * REPLACE (CASE WHEN row_number() OVER (ORDER BY start, log_offset) = 1 THEN origin::VARCHAR END AS origin)
FROM timed ORDER BY start, log_offset
