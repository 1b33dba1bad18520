"""Which dialects' messages are read, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lightstream.schemas.records import SpanRecord

from ..dialects import is_list, is_map, parse_json, unflattened
from ._conversation import Conversation, function_tool, message_of, messages_of
from ._gen_ai import read_flattened, read_parts
from ._openinference import read_openinference

__all__ = ["READERS", "Reader", "read_conversation"]

Reader = Callable[[SpanRecord], Conversation | None]
"""What a span says of a call's messages; ``None`` where it speaks another dialect. Never raises, changes nothing."""


def _recorded(span: SpanRecord) -> Conversation | None:
    """The proxy's: the request as sent, and the chosen message."""
    call = span.llm_call
    if call is None or (call.request_json is None and call.response_json is None):
        return None
    found = Conversation("recorded")
    request = parse_json(call.request_json)
    if is_map(request):
        found.messages = messages_of(request.get("messages"))
        found.tools = _tools(request.get("tools"))
    answer = message_of(parse_json(call.response_json))
    if answer is not None:
        found.answer = [answer]
    return found


def _weave(span: SpanRecord) -> Conversation | None:
    """Agent Lightning's operations: ``agentlightning.operation.input.messages``, ``….output.choices``."""
    if not any(name.startswith("agentlightning.operation.") for name in span.attributes):
        return None
    request = unflattened(span.attributes, "agentlightning.operation.input")
    response = unflattened(span.attributes, "agentlightning.operation.output")
    return _request_and_response("weave", parse_json(request), parse_json(response))


def _bodies(span: SpanRecord) -> Conversation | None:
    """Tracers that keep the request and the answer whole: Langfuse, MLflow, Vercel."""
    at = span.attributes
    for source, asked, answered in _BODIES:
        if asked in at or answered in at:
            request = parse_json(at.get(asked))
            response = parse_json(at.get(answered))
            if response is None and isinstance(at.get(answered), str):
                response = {"role": "assistant", "content": at[answered]}
            return _request_and_response(source, request, response)
    return None


_BODIES = (
    ("langfuse", "langfuse.observation.input", "langfuse.observation.output"),
    ("mlflow", "mlflow.spanInputs", "mlflow.spanOutputs"),
    ("vercel", "ai.prompt.messages", "ai.response.text"),
)


def _request_and_response(source: str, request: Any, response: Any) -> Conversation | None:
    """A request body (or its list of messages) and a response body (or its message)."""
    found = Conversation(source)
    if is_map(request):
        found.messages = messages_of(parse_json(request.get("messages")))
        found.tools = _tools(parse_json(request.get("tools")))
        alone = message_of(request)
        if not found.messages and alone is not None:
            found.messages = [alone]
    else:
        found.messages = messages_of(request)
    if is_map(response) and is_list(response.get("choices")):
        answers = [message_of(choice.get("message")) for choice in response["choices"] if is_map(choice)]
        found.answer = [answer for answer in answers if answer is not None]
    elif is_list(response):
        found.answer = messages_of(response)
    else:
        answer = message_of(response)
        found.answer = [] if answer is None else [answer]
    return found if found.messages or found.answer else None


def _tools(values: object) -> list[dict[str, Any]] | None:
    if not is_list(values):
        return None
    return [tool for value in values if (tool := function_tool(value)) is not None] or None


READERS: tuple[Reader, ...] = (_recorded, read_flattened, read_parts, read_openinference, _weave, _bodies)
"""The first that finds messages is believed."""


def read_conversation(span: SpanRecord) -> Conversation | None:
    """What ``span`` says was asked and answered; ``None`` when it says nothing."""
    for reader in READERS:
        found = reader(span)
        if found is not None and (found.messages or found.answer):
            return found
    return None
