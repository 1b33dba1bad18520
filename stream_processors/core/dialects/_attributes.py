"""Attributes that most dialects share: GenAI names, finish reasons, the agent's name, the span's kind."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from lightstream.schemas.attribute_names import AGL_OPERATION_INPUT, AGL_OPERATION_OUTPUT, POLICY_VERSION, RESOURCES_ID
from lightstream.schemas.policy_names import version_of_model
from lightstream.schemas.records import SpanEventRecord, SpanRecord, SpanStatus
from lightstream.schemas.sampling import sampling_of_request

from ._read_call import ReadCall, is_list, is_map, parse_json, text_or_none

_OF_ALL = "gen_ai.response.finish_reasons"
_OUTPUT = "gen_ai.output.messages"
_OF_THE_ONLY_CHOICE = ("ai.response.finishReason", "llm.finish_reason")
_OF_A_MESSAGE = "finish_reason"


class FinishReasons:
    """The finish reasons of a span's choices. Each text in it is parsed once at most, and only when needed."""

    def __init__(self, span: SpanRecord) -> None:
        self._attributes = span.attributes
        self._events = span.events

    def of(self, choice_index: int) -> tuple[str, str] | None:
        """The finish reason of this choice, and the attribute or event that has it; ``None`` for none."""
        attributes = self._attributes
        if found := self._in_list(choice_index):
            return found, _OF_ALL
        source = f"gen_ai.completion.{choice_index}.finish_reason"
        if found := text_or_none(attributes.get(source)):
            return found, source
        messages = self._messages
        if found := _reason_of(messages[choice_index]) if choice_index < len(messages) else None:
            return found, f"{_OUTPUT}[{choice_index}]"
        for source in _OF_THE_ONLY_CHOICE if choice_index == 0 else ():
            if found := text_or_none(attributes.get(source)):
                return found, source
        return self._in_events.get(choice_index)

    def _in_list(self, index: int) -> str | None:
        """One of a list, which may be JSON text; or the text alone, of the first choice."""
        value, listed = self._attributes.get(_OF_ALL), self._listed
        if is_list(listed):
            return text_or_none(listed[index]) if index < len(listed) else None
        return value if index == 0 and isinstance(value, str) and value.isidentifier() else None

    @cached_property
    def _listed(self) -> Any:
        return parse_json(self._attributes.get(_OF_ALL))

    @cached_property
    def _messages(self) -> Sequence[Any]:
        return _messages(self._attributes.get(_OUTPUT))

    @cached_property
    def _in_events(self) -> dict[float, tuple[str, str]]:
        """Choice -> the reason in the first event that has one, and the event's name."""
        found: dict[float, tuple[str, str]] = {}
        for event in self._events:
            for choice, reason in _reasons_in(event):
                found.setdefault(choice, (reason, event.name))
        return found


def _messages(value: object) -> Sequence[Any]:
    if isinstance(value, str) and f'"{_OF_A_MESSAGE}"' not in value:
        return ()  # long, and parsed for nothing
    messages = parse_json(value)
    return messages if is_list(messages) else ()


def _reason_of(message: object) -> str | None:
    return text_or_none(message.get(_OF_A_MESSAGE)) if is_map(message) else None


def _reasons_in(event: SpanEventRecord) -> Iterator[tuple[float, str]]:
    """Choices and their finish reasons: a choice's own event has one, others may hold the whole answer."""
    attributes = event.attributes
    if event.name == "gen_ai.choice":
        index = attributes.get("index", 0)
        found = [(index, attributes)] if isinstance(index, (int, float)) else []
    else:
        found = list(enumerate(_messages(attributes.get(_OUTPUT))))
    return ((index, reason) for index, message in found if (reason := _reason_of(message)))


_RESPONSE_IDS = (
    "gen_ai.response.id",
    f"{AGL_OPERATION_OUTPUT}.id",
    "lightstream.response_id",
    "ai.response.id",
    "llm.response.id",
)
_MODELS = ("gen_ai.response.model", "llm.model_name", "gen_ai.request.model", "llm.request.model")
_SAMPLING = ("temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty")
"""OpenTelemetry's parameters of a request."""
_IN_METADATA = ("lc_agent_name", "langgraph_node")
_LITELLM_CALL_ID = "litellm.call_id"


def response_id(attributes: Mapping[str, Any]) -> str | None:
    """The id that the LLM server gave its answer, if the span quotes one."""
    return _response_id(attributes)[0] or None


def _response_id(attributes: Mapping[str, Any]) -> tuple[str, str]:
    """LiteLLM puts its own id of the call where the server gave none: no other tracer quotes that one."""
    found = _first(attributes, _RESPONSE_IDS)
    return ("", "") if found[0] and found[0] == attributes.get(_LITELLM_CALL_ID) else found


def complete(calls: list[ReadCall], span: SpanRecord) -> list[ReadCall]:
    """Fill the missing ``calls`` from GenAI attributes: response id, model, policy version, finish reason, failure."""
    reasons = FinishReasons(span)
    for call in calls:
        _complete(call, span, reasons)
    return calls


def _complete(call: ReadCall, span: SpanRecord, reasons: FinishReasons) -> None:
    attributes = span.attributes
    if call.response_id is None:
        value, source = _response_id(attributes)
        if value:
            call.response_id = value
            call.note_source("response_id", source)
    if not call.model:
        call.model, source = _first(attributes, _MODELS)
        if call.model:
            call.note_source("model", source)
    if call.policy_version is None:
        version = attributes.get(POLICY_VERSION)
        if type(version) is int:
            call.policy_version = version
            call.note_source("policy_version", POLICY_VERSION)
        else:
            call.policy_version = version_of_model(call.model)
            if call.policy_version is not None:
                call.note_source("policy_version", call.source_of("model"))
    if call.resources_id is None:
        found_id, source = _first(attributes, (RESOURCES_ID,))
        if found_id:
            call.resources_id = found_id
            call.note_source("resources_id", source)
    if call.sampling_json is None:
        given = {
            name: attributes[f"gen_ai.request.{name}"] for name in _SAMPLING if f"gen_ai.request.{name}" in attributes
        }
        if given:
            call.sampling_json = sampling_of_request(given)
            call.note_source("sampling_json", "gen_ai.request.*")
    if call.finish_reason is None:
        found = reasons.of(call.choice_index)
        if found is not None:
            call.finish_reason, source = found
            call.note_source("finish_reason", source)
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


_CALLS = frozenset({"chat", "text_completion", "generate_content", "completion"})
_NAMES = frozenset({"openai.chat", "openai.chat.completion", "openai.completion", "litellm_request"})

_WORDS_OF_AGENTS = "agent workflow execute tool retrieval memory handoff guardrail"
_WORDS_OF_OTHER_MODELS = "embedding embeddings rerank image video speech transcription ocr moderation"
_WORDS_OF_SERVICES = """search query ingest batch file fine vector assistants thread message container sandbox
    code skill get list delete cancel retrieve count"""
_OTHER_OPERATIONS = frozenset(f"{_WORDS_OF_AGENTS} {_WORDS_OF_OTHER_MODELS} {_WORDS_OF_SERVICES}".split())
"""Words by which an operation is known to be no LLM call: ``execute_tool``, LiteLLM's ``aembedding``, ``file_list``."""
_NO_LETTERS = re.compile("[^a-z]+")

_MODEL_REQUESTS = (".doGenerate", ".doStream")
"""Ends of the names of Vercel's operations that ask a model to write; ``ai.generateText`` lies around them."""
_MLFLOW_TYPES = frozenset({"CHAT_MODEL", "LLM"})


def is_of_llm_kind(span: SpanRecord) -> bool:
    """Whether a span is one of an LLM call: by its operation, its name, the response id that it quotes, or its kind.

    Each library has its own names of operations, so an unknown one decides nothing.
    """
    attributes = span.attributes
    operation = attributes.get("gen_ai.operation.name") or attributes.get("llm.request.type")
    if isinstance(operation, str):
        if operation in _CALLS:
            return True
        if _is_another(operation):
            return False
    return span.name in _NAMES or response_id(attributes) is not None or _is_marked(attributes)


def _is_another(operation: str) -> bool:
    """LiteLLM puts an ``a`` before the names of what it awaits."""
    words = _NO_LETTERS.split(operation.lower())
    return any(word in _OTHER_OPERATIONS or word.removeprefix("a") in _OTHER_OPERATIONS for word in words)


def _is_marked(attributes: Mapping[str, Any]) -> bool:
    """Whether AgentOps, Langfuse, MLflow (whose values are JSON) or Vercel mark the span as a model's run."""
    operation, mlflow_type = attributes.get("ai.operationId"), attributes.get("mlflow.spanType")
    return (
        attributes.get("agentops.span.kind") == "llm"
        or attributes.get("langfuse.observation.type") == "generation"
        or (isinstance(mlflow_type, str) and mlflow_type.strip('"') in _MLFLOW_TYPES)
        or (isinstance(operation, str) and operation.endswith(_MODEL_REQUESTS))
    )
