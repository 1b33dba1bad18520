-- Every run of a tool, as its span tells: by OpenTelemetry's conventions (`execute_tool`), OpenInference, OpenLLMetry,
-- AgentOps, Langfuse, LangSmith, MLflow, Vercel and MCP. Tools that an agent runs without a span are in its messages alone.
-- Columns of `spans` and `rollouts`, and:
--   tool_name: the tool.
--   status: status of the rollout now.
--   agent_name: agent that ran it: the one that the nearest of its span and the four above it names, else that of its
--     attempt; `agent` where nothing names one.
--   model: model of the attempt's LLM calls, whichever version of it, or several; NULL until it is assembled.
--   seconds: how long it took, in seconds.
--   failed: true where its span says that it failed.
--   error_type: kind of the error, where the span names one.
--   error_message: text of the error; empty where the span has none.
--   tool_call_id: id of the model's call for it, where the span names it.
--   arguments: what it was given, as the span has it (JSON or text).
--   result: what it gave, as the span has it (JSON or text).
SELECT
    span.rollout_id, span.attempt_id, rollout.run_id, rollout.mode, rollout.status,
    coalesce(
        span.agent_name, above1.agent_name, above2.agent_name, above3.agent_name, above4.agent_name, made.agent_name,
        'agent'
    ) AS agent_name,
    made.model, span.tool_name,
    (span.end_unix_nano - span.start_unix_nano) / 1e9 AS seconds,
    span.status = 'error' OR (span.attributes ->> '$."error.type"') IS NOT NULL AS failed,
    coalesce(span.attributes ->> '$."error.type"', raised ->> '$."exception.type"') AS error_type,
    CASE WHEN failed THEN coalesce(nullif(span.status_message, ''), raised ->> '$."exception.message"', '') END
        AS error_message,
    coalesce(
        span.attributes ->> '$."gen_ai.tool.call.id"', span.attributes ->> '$."ai.toolCall.id"',
        span.attributes ->> '$."tool_call.id"'
    ) AS tool_call_id,
    coalesce(
        span.attributes ->> '$."gen_ai.tool.call.arguments"', span.attributes ->> '$."tool_arguments"',
        span.attributes ->> '$."ai.toolCall.args"', span.attributes ->> '$."traceloop.entity.input"',
        span.attributes ->> '$."agentops.entity.input"', span.attributes ->> '$."langfuse.observation.input"',
        span.attributes ->> '$."mlflow.spanInputs"', span.attributes ->> '$."input.value"'
    ) AS arguments,
    coalesce(
        span.attributes ->> '$."gen_ai.tool.call.result"', span.attributes ->> '$."tool_response"',
        span.attributes ->> '$."ai.toolCall.result"', span.attributes ->> '$."traceloop.entity.output"',
        span.attributes ->> '$."agentops.entity.output"', span.attributes ->> '$."langfuse.observation.output"',
        span.attributes ->> '$."mlflow.spanOutputs"', span.attributes ->> '$."output.value"'
    ) AS result,
    span.trace_id, span.span_id, span.parent_id, span.start_unix_nano, span.end_unix_nano,
    span.log_partition, span.log_offset
FROM (
    SELECT *,
        list_filter(
            from_json(events, '["JSON"]'), lambda event: (event ->> '$.name') = 'exception'
        )[1] -> '$.attributes' AS raised
    FROM spans
    WHERE tool_name IS NOT NULL
) AS span
LEFT JOIN (SELECT rollout_id, run_id, mode, status FROM rollouts_latest) AS rollout
    ON rollout.rollout_id = span.rollout_id
LEFT JOIN (SELECT rollout_id, attempt_id, agent_name, model FROM trajectories_latest) AS made
    ON made.rollout_id = span.rollout_id AND made.attempt_id = span.attempt_id
LEFT JOIN (SELECT rollout_id, trace_id, span_id, parent_id, agent_name, tool_name FROM spans_raw) AS above1
    ON above1.rollout_id = span.rollout_id AND above1.trace_id = span.trace_id AND above1.span_id = span.parent_id
LEFT JOIN (SELECT rollout_id, trace_id, span_id, parent_id, agent_name FROM spans_raw) AS above2
    ON above2.rollout_id = span.rollout_id AND above2.trace_id = span.trace_id AND above2.span_id = above1.parent_id
LEFT JOIN (SELECT rollout_id, trace_id, span_id, parent_id, agent_name FROM spans_raw) AS above3
    ON above3.rollout_id = span.rollout_id AND above3.trace_id = span.trace_id AND above3.span_id = above2.parent_id
LEFT JOIN (SELECT rollout_id, trace_id, span_id, parent_id, agent_name FROM spans_raw) AS above4
    ON above4.rollout_id = span.rollout_id AND above4.trace_id = span.trace_id AND above4.span_id = above3.parent_id
WHERE above1.tool_name IS DISTINCT FROM span.tool_name  -- else two libraries tell of the same run
QUALIFY row_number() OVER (PARTITION BY span.rollout_id, span.log_partition, span.log_offset) = 1
