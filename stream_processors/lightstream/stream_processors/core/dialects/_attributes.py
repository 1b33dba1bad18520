"""What most dialects share: response id, model and finish reason by OpenTelemetry's GenAI names; the agent's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightstream.schemas.attribute_names import AGL_OPERATION_INPUT, AGL_OPERATION_OUTPUT, POLICY_VERSION
from lightstream.schemas.policy_names import version_of_model
from lightstream.schemas.records import SpanRecord, SpanStatus

from ._finish_reason import FinishReasons
from ._model import ReadCall
from ._values import is_map, parse_json, text_or_none

__all__ = ["agent_name", "complete", "response_id"]

_RESPONSE_IDS = (
    "gen_ai.response.id",
    f"{AGL_OPERATION_OUTPUT}.id",
    "lightstream.response_id",
    "ai.response.id",
    "llm.response.id",
)
_MODELS = ("gen_ai.response.model", "llm.model_name", "gen_ai.request.model", "llm.request.model")
_IN_METADATA = ("lc_agent_name", "langgraph_node")
_LITELLM_CALL_ID = "litellm.call_id"


def response_id(attributes: Mapping[str, Any]) -> str | None:
    """The id that the LLM server gave its answer, if the span quotes one."""
    return _response_id(attributes)[0] or None


def _response_id(attributes: Mapping[str, Any]) -> tuple[str, str]:
    """LiteLLM puts its own id of the call where the server gave none: nobody else quotes that one."""
    found = _first(attributes, _RESPONSE_IDS)
    return ("", "") if found[0] and found[0] == attributes.get(_LITELLM_CALL_ID) else found


def complete(calls: list[ReadCall], span: SpanRecord) -> list[ReadCall]:
    """Fill what ``calls`` lack from GenAI attributes: response id, model, policy version, finish reason, failure."""
    reasons = FinishReasons(span)
    for call in calls:
        _complete(call, span, reasons)
    return calls


def _complete(call: ReadCall, span: SpanRecord, reasons: FinishReasons) -> None:
    attributes = span.attributes
    if call.response_id is None:
        value, place = _response_id(attributes)
        if value:
            call.response_id = value
            call.found("response_id", place)
    if not call.model:
        call.model, place = _first(attributes, _MODELS)
        if call.model:
            call.found("model", place)
    if call.policy_version is None:
        version = attributes.get(POLICY_VERSION)
        if type(version) is int:
            call.policy_version = version
            call.found("policy_version", POLICY_VERSION)
        else:
            call.policy_version = version_of_model(call.model)
            if call.policy_version is not None:
                call.found("policy_version", call.place_of("model"))
    if call.finish_reason is None:
        found = reasons.of(call.choice_index)
        if found is not None:
            call.finish_reason, place = found
            call.found("finish_reason", place)
    if call.failure is None and span.status == SpanStatus.ERROR and call.response_token_ids is None:
        call.failure = span.status_message or "the span's status is an error"


def _first(attributes: Mapping[str, Any], names: tuple[str, ...]) -> tuple[str, str]:
    """The first of these attributes that has text, and its name."""
    for name in names:
        value = attributes.get(name)
        if isinstance(value, str) and value:
            return value, name
    return "", ""


def agent_name(span: SpanRecord) -> str | None:
    """The agent that a span names, by the first of the conventions that applies; ``None`` when it names none."""
    attributes = span.attributes
    if not attributes:
        return None
    for name in ("agent.name", "gen_ai.agent.name"):
        if found := text_or_none(attributes.get(name)):
            return found
    if attributes.get("agentops.span.kind") == "agent" and (found := text_or_none(attributes.get("operation.name"))):
        return found
    for name in ("recipient_agent_type", "langchain.chain.type", "executor.id", "graph.node.id"):
        if found := text_or_none(attributes.get(name)):
            return found
    if attributes.get("type") == "agent" and (found := text_or_none(attributes.get(f"{AGL_OPERATION_INPUT}.name"))):
        return found
    if span.name.startswith("langchain.Chain."):
        return text_or_none(attributes.get("lc_name"))
    return _agent_in_metadata(attributes.get("metadata")) or _agent_by_kind(span)


def _agent_in_metadata(metadata: object) -> str | None:
    """LangChain's, as OpenInference passes it on: the agent that runs, else the node of its graph."""
    if not isinstance(metadata, str) or not any(name in metadata for name in _IN_METADATA):
        return None
    parsed = parse_json(metadata)
    found = [text_or_none(parsed.get(name)) for name in _IN_METADATA] if is_map(parsed) else []
    return next((name for name in found if name is not None), None)


def _agent_by_kind(span: SpanRecord) -> str | None:
    """OpenInference marks an agent's span as one; where nothing else names the agent, the span's name does.

    smolagents' spans are named ``<agent>.run``.
    """
    kind = span.attributes.get("openinference.span.kind")
    is_agent = isinstance(kind, str) and kind.upper() == "AGENT"
    return text_or_none(span.name.removesuffix(".run")) if is_agent else None
