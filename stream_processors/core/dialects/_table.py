"""The dialects, the most telling first, and the order in which they are tried."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

from lightstream.schemas.attribute_names import (
    AGL_OPERATION_OUTPUT,
    CHOICE_INDEX,
    PROMPT_TOKEN_IDS,
    RESEND_COUNT,
    RESPONSE_LOGPROBS,
    RESPONSE_TOKEN_IDS,
    TRUNCATED,
)
from lightstream.schemas.policy_names import version_of_model
from lightstream.schemas.records import DropReason, LlmCall, SpanRecord
from lightstream.schemas.sampling import sampling_of_request
from lightstream.schemas.valid_text import valid_text

from ._attributes import complete, is_of_llm_kind
from ._flat import unflattened
from ._images import images_of_request
from ._read_call import ReadCall, is_list, is_map, parse_json, set_logprobs, set_token_ids, text_or_none
from .engine_response import looks_like_response, read_response

PROXY = "proxy"
"""The call passed through the proxy: it certainly happened, as recorded. Told by its HTTP status or error."""
RECORDED = "recorded"
"""A tracer filled in the call itself."""


OPERATION, EMBEDDINGS = "gen_ai.operation.name", "embeddings"


def read_recorded(span: SpanRecord, call: LlmCall) -> ReadCall:
    """The call as recorded. ``span`` is unchanged; nothing but images is copied."""
    failure = None
    status = call.http_status
    if status is not None and status >= HTTPStatus.BAD_REQUEST:
        failure = f"HTTP {status}: {call.error_message or 'no message'}"
    elif call.error_message:
        failure = call.error_message
    model = call.response_model or call.requested_model
    runs = tuple(call.policy_version_runs)
    images, problem = images_of_request(call.request_json)
    reason = DropReason.IMAGE_NOT_RECORDED if problem else None
    if span.attributes.get(OPERATION) == EMBEDDINGS:
        reason, problem = DropReason.EMPTY_RESPONSE, "an embedding is computed, and no token sampled"
    resent = span.attributes.get(RESEND_COUNT)
    version = runs[0].policy_version if runs and call.policy_version is None else call.policy_version
    return ReadCall(
        PROXY if status is not None or failure is not None else RECORDED,
        call.response_id or None,
        call.choice_index,
        model,
        version if version is not None else version_of_model(model),
        call.prompt_token_ids,
        call.response_token_ids,
        call.response_logprobs,
        call.finish_reason,
        failure,
        reason,
        problem,
        resend_count=resent if type(resent) is int else 0,
        policy_version_runs=runs,
        images=images,
        resources_id=call.resources_id,
        sampling_json=call.sampling_json if call.sampling_json is not None else _sampling_of(call.request_json),
    )


def _sampling_of(request_json: str | None) -> str | None:
    """The same from a request that was recorded before calls had a field for it."""
    request = parse_json(request_json)
    return sampling_of_request(request) if is_map(request) else None


def read_canonical(span: SpanRecord) -> list[ReadCall]:
    """One call where the span has prompt or response ids under our names."""
    attributes = span.attributes
    if PROMPT_TOKEN_IDS not in attributes and RESPONSE_TOKEN_IDS not in attributes:
        return []
    choice = attributes.get(CHOICE_INDEX)
    call = ReadCall("canonical", choice_index=choice if type(choice) is int and choice >= 0 else 0)
    set_token_ids(call, "prompt_token_ids", attributes.get(PROMPT_TOKEN_IDS), PROMPT_TOKEN_IDS)
    set_token_ids(call, "response_token_ids", attributes.get(RESPONSE_TOKEN_IDS), RESPONSE_TOKEN_IDS)
    set_logprobs(call, attributes.get(RESPONSE_LOGPROBS), RESPONSE_LOGPROBS)
    return complete([call], span)


def read_agent_lightning(span: SpanRecord) -> list[ReadCall]:
    """One call where the span has ids as attributes, else the calls of an operation's answer."""
    attributes = span.attributes
    if "prompt_token_ids" in attributes or "response_token_ids" in attributes:
        call = ReadCall("agent_lightning")
        set_token_ids(call, "prompt_token_ids", attributes.get("prompt_token_ids"), "prompt_token_ids")
        set_token_ids(call, "response_token_ids", attributes.get("response_token_ids"), "response_token_ids")
        set_logprobs(call, attributes.get("logprobs.content"), "logprobs.content")
        return complete([call], span)
    return _weave(span)


def _weave(span: SpanRecord) -> list[ReadCall]:
    """The answer, which Weave's tracer spells out: one call a choice. An operation may return anything else."""
    if _OF_ANSWERS.isdisjoint(span.attributes):
        return []
    body = unflattened(span.attributes, AGL_OPERATION_OUTPUT)
    calls = read_response(body, AGL_OPERATION_OUTPUT, "agent_lightning")
    if not any(call.names_a_call for call in calls):
        calls = []
    if not calls and is_map(body) and "prompt_token_ids" in body:
        calls = [ReadCall("agent_lightning")]
        set_token_ids(
            calls[0], "prompt_token_ids", body["prompt_token_ids"], f"{AGL_OPERATION_OUTPUT}:prompt_token_ids"
        )
    return complete(calls, span)


_OF_A_CHOICE = ("index", "finish_reason", "message.role", "message.content", "token_ids", "logprobs")
_OF_ANSWERS = frozenset(
    f"{AGL_OPERATION_OUTPUT}.{name}"
    for name in (
        "prompt_token_ids",
        "response_token_ids",
        "response_token_ids.0",
        "choices.0.provider_specific_fields.token_ids",
        *(f"choices.0.{name}" for name in _OF_A_CHOICE),
    )
)
"""Every LLM's answer has some of these attributes: spans without any are left out at once."""


KIND = "openinference.span.kind"

COUNTING = "count_tokens"
"""End of the names of spans of LLM kind that ask no model: Anthropic's count of a prompt's tokens."""


def read_openinference(span: SpanRecord) -> list[ReadCall]:
    """The calls of an LLM-kind span; one without content where the value is redacted or no JSON."""
    kind = span.attributes.get(KIND)
    if not isinstance(kind, str) or kind.upper() != "LLM" or span.name.endswith(COUNTING):
        return []
    body = parse_json(span.attributes.get("output.value"))
    if looks_like_response(body):
        calls = read_response(body, "output.value", "openinference")
    elif is_map(body) and is_list(body.get("generations")):
        calls = [_langchain(body["generations"], body)]
    else:
        calls = []
    return complete(calls or [ReadCall("openinference")], span)


def _langchain(generations: Any, body: Any) -> ReadCall:
    """LangChain's result: log-probabilities and perhaps a response id, never token ids."""
    call = ReadCall("openinference")
    first = generations[0] if generations else None
    first = first[0] if is_list(first) and first else first
    if not is_map(first):
        return call
    info = first.get("generation_info")
    if is_map(info):
        set_logprobs(call, info.get("logprobs"), "output.value:generations[0][0].generation_info.logprobs")
        call.finish_reason = text_or_none(info.get("finish_reason"))
    message = first.get("message")
    keywords = message.get("kwargs") if is_map(message) else None
    metadata = keywords.get("response_metadata") if is_map(keywords) else None
    output = body.get("llm_output")
    for holder in (metadata, output):
        if is_map(holder) and call.response_id is None:
            call.response_id = text_or_none(holder.get("id"))
    return call


SPAN_NAME = "raw_gen_ai_request"
LITERAL_CHARS_MAX = 4 * 1024 * 1024
"""Python's parser takes about 50 bytes of memory per character: 200 MB at this limit. It bounds nesting by itself."""

_KEYS = frozenset({"id", "model", "choices", "prompt_token_ids", "response_token_ids", "token_ids", "error"})
_TEXTS = frozenset({"id", "model"})


def read_litellm_legacy(span: SpanRecord) -> list[ReadCall]:
    """The calls of a raw request span; one without tokens where its text cannot be read."""
    provider, body = raw_values(span, _KEYS)
    if not body:
        return []
    calls = read_response(body, provider, "litellm_legacy") or [_without_answer(body)]
    for call in calls:
        call.is_request = True
    return complete(calls, span)


def raw_values(span: SpanRecord, keys: frozenset[str]) -> tuple[str, dict[str, Any]]:
    """``llm.<provider>`` and the values that a raw request span has below it under these keys; nothing of other
    spans."""
    provider, values = "llm", dict[str, Any]()
    for name, value in span.attributes.items() if span.name == SPAN_NAME else ():
        prefix, _, key = name.rpartition(".")
        if prefix.startswith("llm.") and prefix.count(".") == 1 and key in keys:
            provider = prefix
            values[key] = value if key in _TEXTS else parse_literal(value)
    return provider, values


def _without_answer(body: dict[str, Any]) -> ReadCall:
    """An answer that cannot be read has an id all the same."""
    return ReadCall("litellm_legacy", text_or_none(body.get("id")), model=text_or_none(body.get("model")) or "")


def parse_literal(value: object) -> Any:
    """Text as JSON or as a Python literal, other values as they are; ``None`` where it is neither or over a limit.

    Nor is one with a whole number that is too long to be written down.
    """
    if not isinstance(value, str):
        return value
    parsed = parse_json(value)
    if parsed is not None or len(value) > LITERAL_CHARS_MAX:
        return parsed
    try:
        literal = valid_text(ast.literal_eval(value))
        json.dumps(literal, default=str, skipkeys=True)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None
    return literal


BODY_ATTRIBUTES = {
    "gen_ai.response.body": "engine_response",
    "http.response.body": "engine_response",
    "llm.response": "engine_response",
    "nemo_gym.response": "nemo_gym",
    "atif.trajectory": "atif",
    "mlflow.spanOutputs": "mlflow",
    "langfuse.observation.output": "langfuse",
    "traceloop.entity.output": "openllmetry",
}
"""Attribute -> name of the dialect."""


def read_captured_body(span: SpanRecord) -> list[ReadCall]:
    """The calls of the first such attribute that holds token ids of any; without them where the span is of LLM kind.

    Entities around a call often keep its answer too, so a body without token ids alone does not mean a call.
    """
    attributes = span.attributes
    without_tokens: list[ReadCall] = []
    for name, dialect in BODY_ATTRIBUTES.items():
        if name not in attributes:
            continue
        body = parse_json(attributes[name])
        calls = read_response(body, name, dialect) or read_atif(body, name)
        if any(call.response_token_ids is not None or call.problem is not None for call in calls):
            return complete(calls, span)
        without_tokens = without_tokens or calls
    return complete(without_tokens, span) if without_tokens and is_of_llm_kind(span) else []


STEPS_MAX = 100_000
"""Steps read of one trajectory; as many as an attempt of ours is tested with."""


def read_atif(body: object, source: str) -> list[ReadCall]:
    """One call per step that has response ids; ``choice_index`` is the step's position among these."""
    if not is_map(body) or not is_list(body.get("steps")):
        return []
    agent = body.get("agent")
    default = text_or_none(agent.get("model_name")) if is_map(agent) else None
    calls: list[ReadCall] = []
    for position, step in enumerate(body["steps"][:STEPS_MAX]):
        metrics = step.get("metrics") if is_map(step) else None
        if not is_map(metrics) or "completion_token_ids" not in metrics:
            continue
        at = f"{source}:steps[{position}].metrics"
        call = ReadCall("atif", choice_index=len(calls), model=text_or_none(step.get("model_name")) or default or "")
        set_token_ids(call, "prompt_token_ids", metrics.get("prompt_token_ids"), f"{at}.prompt_token_ids")
        set_token_ids(call, "response_token_ids", metrics["completion_token_ids"], f"{at}.completion_token_ids")
        set_logprobs(call, metrics.get("logprobs"), f"{at}.logprobs")
        calls.append(call)
    return calls


def read_gen_ai(span: SpanRecord) -> list[ReadCall]:
    """One call without tokens where the span is of LLM kind. Joined by response id, it says who called."""
    return complete([ReadCall("gen_ai")], span) if is_of_llm_kind(span) else []


def read_named(span: SpanRecord) -> list[ReadCall]:
    """One call of a span that is known to be of LLM kind by its name alone."""
    return complete([ReadCall("span_name")], span)


Dialect = Callable[[SpanRecord], list[ReadCall]]
"""The LLM calls that a span describes: none when the span speaks another dialect. Never raises, changes nothing."""

DIALECTS: tuple[Dialect, ...] = (
    read_canonical,
    read_agent_lightning,
    read_openinference,
    read_litellm_legacy,
    read_captured_body,
    read_gen_ai,
)
"""Most telling first: the first dialect that finds token ids is believed, else the first that finds a call."""


def read_calls(span: SpanRecord, dialects: Sequence[Dialect] = DIALECTS) -> list[ReadCall]:
    """The LLM calls that ``span`` describes (several where it holds several choices), in their order.

    The record's own ``llm_call`` stands above every dialect.
    """
    if span.llm_call is not None:
        calls = [read_recorded(span, span.llm_call)]
    else:
        calls = _read_by(dialects, span) if span.attributes else []
    if TRUNCATED in span.attributes:
        _name_what_was_cut(span, calls)
    return calls


def _read_by(dialects: Sequence[Dialect], span: SpanRecord) -> list[ReadCall]:
    found: list[ReadCall] = []
    for dialect in dialects:
        calls = dialect(span)
        if any(call.response_token_ids is not None or call.problem is not None for call in calls):
            return calls
        found = found or calls
    return found


def _name_what_was_cut(span: SpanRecord, calls: Sequence[ReadCall]) -> None:
    """Tell token ids that did not fit a record from those that nobody captured."""
    cut = span.attributes[TRUNCATED]
    notes = [note for note in cut if isinstance(note, str)] if is_list(cut) else []
    if not any("token_ids" in note for note in notes):
        return
    for call in calls:
        if call.prompt_token_ids is None or call.response_token_ids is None:
            call.problem = DropReason.TOO_LARGE
            call.detail = f"its token ids did not fit a record of spans; cut were {', '.join(notes)}"
