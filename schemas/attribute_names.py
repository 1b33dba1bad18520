"""Names of attributes and spans on the wire. The ``agentlightning.*`` names are the field's own."""

from __future__ import annotations

# --- ours
ROLLOUT_ID = "lightstream.rollout_id"
ATTEMPT_ID = "lightstream.attempt_id"
RESOURCES_ID = "lightstream.resources_id"
POLICY_VERSION = "lightstream.policy_version"
PROMPT_TOKEN_IDS = "lightstream.prompt_token_ids"
RESPONSE_TOKEN_IDS = "lightstream.response_token_ids"
RESPONSE_LOGPROBS = "lightstream.response_logprobs"
CHOICE_INDEX = "lightstream.llm_call.choice_index"
"""Of a recorded call: which choice of its answer the span tells of."""
RESEND_COUNT = "http.request.resend_count"
"""Of the proxy's record: the client sent the request before, this many times, and had no answer (OpenTelemetry's name
for HTTP)."""
TRUNCATED = "lightstream.truncated"
"""List of what was cut out of a span that was over the record limit, each with its size."""

# --- of a log record that is kept as a span
LOG_BODY = "lightstream.log.body"
LOG_SEVERITY_NUMBER = "lightstream.log.severity_number"
LOG_SEVERITY_TEXT = "lightstream.log.severity_text"

# --- Agent Lightning's span names
AGL_ANNOTATION = "agentlightning.annotation"
AGL_EXCEPTION = "agentlightning.exception"
AGL_MESSAGE = "agentlightning.message"
AGL_OBJECT = "agentlightning.object"
AGL_OPERATION = "agentlightning.operation"
AGL_VIRTUAL = "agentlightning.virtual"

# --- Agent Lightning's attributes
AGL_ROLLOUT_ID = "agentlightning.rollout_id"
AGL_ATTEMPT_ID = "agentlightning.attempt_id"
AGL_SPAN_SEQUENCE_ID = "agentlightning.span_sequence_id"
AGL_REWARD = "agentlightning.reward"
"""Prefix of a reward's dimensions; before 0.3 the name of a reward's span."""
AGL_LINK = "agentlightning.link"
AGL_TAG = "agentlightning.tag"
AGL_MESSAGE_BODY = "agentlightning.message.body"
AGL_OBJECT_TYPE = "agentlightning.object.type"
AGL_OBJECT_LITERAL = "agentlightning.object.literal"
AGL_OBJECT_JSON = "agentlightning.object.json"
AGL_OPERATION_NAME = "agentlightning.operation.name"
AGL_OPERATION_INPUT = "agentlightning.operation.input"
AGL_OPERATION_OUTPUT = "agentlightning.operation.output"
AGL_TRACER_NAME = "agentlightning.tracer.name"

# --- of a span or an event whose tracer left something out, where there is no field for it (OpenTelemetry's names)
DROPPED_ATTRIBUTES = "otel.dropped_attributes_count"
DROPPED_EVENTS = "otel.dropped_events_count"
