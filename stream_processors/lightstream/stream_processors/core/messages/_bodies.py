"""Whole requests and answers: the proxy's record, Agent Lightning's operations, Langfuse, MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightstream.schemas.attribute_names import AGL_OPERATION, AGL_OPERATION_INPUT, AGL_OPERATION_OUTPUT
from lightstream.schemas.records import SpanRecord

from ..dialects import is_list, is_map, parse_json, unflattened
from ._conversation import Conversation, Message, function_tools, message_of, messages_of

__all__ = ["read_kept_bodies", "read_recorded", "read_weave", "request_and_response"]


def read_recorded(span: SpanRecord) -> Conversation | None:
    """The proxy's: the request as sent, and the chosen message."""
    call = span.llm_call
    if call is None or (call.request_json is None and call.response_json is None):
        return None
    found = Conversation("recorded")
    request = parse_json(call.request_json)
    if is_map(request):
        found.messages = _asked(request, call.choice_index)
        found.tools = function_tools(request.get("tools"))
    answer = message_of(parse_json(call.response_json))
    if answer is not None:
        found.answer = [answer]
    return found


def read_weave(span: SpanRecord) -> Conversation | None:
    """Agent Lightning's operations: ``agentlightning.operation.input.messages``, ``….output.choices``."""
    if not any(name.startswith(f"{AGL_OPERATION}.") for name in span.attributes):
        return None
    request = unflattened(span.attributes, AGL_OPERATION_INPUT)
    response = unflattened(span.attributes, AGL_OPERATION_OUTPUT)
    return request_and_response("weave", parse_json(request), parse_json(response))


def read_kept_bodies(span: SpanRecord) -> Conversation | None:
    """Tracers that keep the request and the answer whole, the answer perhaps as plain text."""
    at = span.attributes
    for source, asked, answered in _KEPT:
        if asked in at or answered in at:
            response = parse_json(at.get(answered))
            if response is None and isinstance(at.get(answered), str):
                response = {"role": "assistant", "content": at[answered]}
            return request_and_response(source, parse_json(at.get(asked)), response)
    return None


_KEPT = (
    ("langfuse", "langfuse.observation.input", "langfuse.observation.output"),
    ("mlflow", "mlflow.spanInputs", "mlflow.spanOutputs"),
)


def request_and_response(source: str, request: Any, response: Any) -> Conversation | None:
    """A request body (or its list of messages) and a response body (or its message)."""
    found = Conversation(source)
    if is_map(request):
        found.messages = _asked(request, 0)
        found.tools = function_tools(request.get("tools"))
        alone = message_of(request)
        if not found.messages and alone is not None:
            found.messages = [alone]
    else:
        found.messages = messages_of(request)
    if is_map(response) and is_list(response.get("choices")):
        answers = [_of_choice(choice) for choice in response["choices"] if is_map(choice)]
        found.answer = [answer for answer in answers if answer is not None]
    elif is_list(response):
        found.answer = messages_of(response)
    else:
        answer = message_of(response)
        found.answer = [] if answer is None else [answer]
    return found if found.messages or found.answer else None


def _asked(request: Mapping[str, Any], choice_index: int) -> list[Message]:
    """The messages; of a request for completions its prompt as the user's, of several prompts the choice's own."""
    messages = messages_of(parse_json(request.get("messages")))
    prompt = request.get("prompt")
    if messages or not prompt:
        return messages
    if is_list(prompt):
        wanted = request.get("n")
        place = choice_index // wanted if type(wanted) is int and wanted > 0 else choice_index
        prompt = prompt[place] if 0 <= place < len(prompt) else None
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else []


def _of_choice(choice: Mapping[str, Any]) -> Message | None:
    """Its message; of completions its text."""
    text = choice.get("text")
    return {"role": "assistant", "content": text} if isinstance(text, str) else message_of(choice.get("message"))
