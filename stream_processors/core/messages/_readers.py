"""Readers of messages, one per convention, and their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lightstream.schemas.attribute_names import AGL_OPERATION, AGL_OPERATION_INPUT, AGL_OPERATION_OUTPUT
from lightstream.schemas.records import SpanRecord

from ..dialects import grouped, is_list, is_map, parse_json, raw_values, unflattened
from ._conversation import (
    Conversation,
    Message,
    as_text,
    function_tools,
    message_of,
    messages_of,
    tool_call,
    with_reasoning,
)
from ._gen_ai import conversation_of_events, read_details, read_events, read_flattened, read_parts
from ._incomplete import why_incomplete
from ._items import choices_of_items, is_chat_message, messages_of_items


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
    """A request body (or its list of messages) and a response body (or its message), of any model's interface."""
    found = Conversation(source)
    if is_map(request):
        found.messages = _asked(request, 0, found.left_out)
        found.tools = function_tools(request.get("tools"))
        if not found.messages:
            found.messages = _messages([request], []) if "role" in request or "kwargs" in request else []
    else:
        found.messages = _messages(request, found.left_out)
    if is_map(response) and is_list(response.get("choices")):
        answers = [_of_choice(choice) for choice in response["choices"] if is_map(choice)]
        found.answer = [answer for answer in answers if answer is not None]
    elif is_list(response) and all(map(is_chat_message, response)):
        found.answer = messages_of(response)
    else:
        found.take_answers(_choices(response, found.left_out))
    return found if found.messages or found.answer else None


def _messages(values: object, left_out: list[str]) -> list[Message]:
    """OpenAI's chat messages as they are; those of other shapes as chat messages."""
    if is_list(values) and all(map(is_chat_message, values)):
        return messages_of(values)
    return messages_of_items(values, left_out)


def _choices(response: Any, left_out: list[str]) -> list[list[Message]]:
    """The answers in a body of Responses, Gemini, Bedrock, LangChain or Anthropic; and of OpenAI's chat one message."""
    if not is_map(response):
        return choices_of_items(response, left_out) if is_list(response) else []
    if is_chat_message(response):
        answer = message_of(response)
        return [] if answer is None else [[answer]]
    for name in ("output", "candidates", "generations"):
        held = response.get(name)
        if is_map(held):  # Bedrock's
            return choices_of_items([held], left_out)
        if is_list(held):
            listed = held[0] if held and is_list(held[0]) else held
            return choices_of_items([_held(item) for item in listed], left_out)
    return choices_of_items([response], []) if {"role", "kwargs", "type"} & response.keys() else []


def _held(item: Any) -> Any:
    """Gemini's candidates hold their message as ``content``."""
    content = item.get("content") if is_map(item) and "role" not in item else None
    return content if is_map(content) else item


def _asked(request: Mapping[str, Any], choice_index: int, left_out: list[str] | None = None) -> list[Message]:
    """The messages; of a request for completions its prompt as the user's, of several prompts the choice's own.

    Args:
        left_out: with it, those of other interfaces too.
    """
    listed = parse_json(request.get("messages"))
    if left_out is None:
        messages = messages_of(listed)
    else:
        of_others = (request.get(name) for name in ("input", "contents"))
        others = next((values for values in of_others if is_list(values)), ())
        messages = _messages(listed if is_list(listed) else others, left_out)
        instructions = request.get("system", request.get("instructions"))
        if messages and instructions and messages[0]["role"] != "system":
            messages = [*messages_of_items([{"role": "system", "content": instructions}], left_out), *messages]
    prompt = request.get("prompt")
    if messages or not prompt:
        return messages
    if is_list(prompt):
        wanted = request.get("n")
        index = choice_index // wanted if type(wanted) is int and wanted > 0 else choice_index
        prompt = prompt[index] if 0 <= index < len(prompt) else None
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else []


def _of_choice(choice: Mapping[str, Any]) -> Message | None:
    """Its message; of completions its text."""
    text = choice.get("text")
    return {"role": "assistant", "content": text} if isinstance(text, str) else message_of(choice.get("message"))


_LITELLM_REQUEST, _LITELLM_RESPONSE = frozenset({"messages", "tools", "prompt"}), frozenset({"choices"})


def read_litellm_legacy(span: SpanRecord) -> Conversation | None:
    """The request and the answer as they were, where their text can be read."""
    _, values = raw_values(span, _LITELLM_REQUEST | _LITELLM_RESPONSE)
    if not values:
        return None
    request = {name: value for name, value in values.items() if name in _LITELLM_REQUEST}
    return request_and_response("litellm_legacy", request, {"choices": values.get("choices")})


def read_openinference(span: SpanRecord) -> Conversation | None:
    """Messages with their parts and tool calls, and the tools on offer."""
    if not any(name.startswith(("llm.input_messages.", "llm.output_messages.")) for name in span.attributes):
        return None
    found = Conversation("openinference")
    found.messages = _openinference_messages(grouped(span.attributes, "llm.input_messages"))
    found.answer = _openinference_messages(grouped(span.attributes, "llm.output_messages"))
    tools = grouped(span.attributes, "llm.tools")
    if is_list(tools):
        found.tools = function_tools([_below(tool, "tool").get("json_schema") for tool in tools])
    return found


def _openinference_messages(values: object) -> list[Message]:
    return [_openinference_message(_below(value, "message")) for value in values] if is_list(values) else []


def _openinference_message(value: dict[str, Any]) -> Message:
    role = value.get("role")
    role = role if isinstance(role, str) and role else "user"
    message: Message = {"role": role, "content": value.get("content", "")}
    contents = value.get("contents")
    if is_list(contents):
        held = [_below(item, "message_content") for item in contents]
        thoughts = [
            item["text"] for item in held if item.get("type") == "reasoning" and isinstance(item.get("text"), str)
        ]
        spoken = (item for item in held if item.get("type") != "reasoning")
        message["content"] = [part for item in spoken if (part := _openinference_part(item))]
        with_reasoning(message, {"reasoning": "\n".join(thoughts)})
    calls = value.get("tool_calls")
    if is_list(calls):
        message["content"] = message["content"] or None
        message["tool_calls"] = [_openinference_call(_below(call, "tool_call")) for call in calls]
    if isinstance(value.get("tool_call_id"), str):
        message["tool_call_id"] = value["tool_call_id"]
    return with_reasoning(message, value)


def _openinference_part(value: dict[str, Any]) -> dict[str, Any] | None:
    if isinstance(value.get("text"), str):
        return {"type": "text", "text": value["text"]}
    url = _below(_below(value, "image"), "image").get("url")
    return {"type": "image_url", "image_url": {"url": url}} if isinstance(url, str) else None


def _openinference_call(value: dict[str, Any]) -> dict[str, Any]:
    function = _below(value, "function")
    return tool_call(value.get("id"), function.get("name"), function.get("arguments"))


def _below(value: object, name: str) -> dict[str, Any]:
    """The mapping at ``name``; empty where there is none."""
    inner = value.get(name) if is_map(value) else None
    return dict(inner) if is_map(inner) else {}


_VERCEL_PROMPT, _VERCEL_TOOLS = "ai.prompt.messages", "ai.prompt.tools"
_VERCEL_TEXTS = ("ai.response.text", "ai.response.object")
_VERCEL_CALLS = "ai.response.toolCalls"
_VERCEL_REASONING = "ai.response.reasoning"


def read_vercel(span: SpanRecord) -> Conversation | None:
    """A request to the model and its answer; the structured answer of ``generateObject`` is its text."""
    at = span.attributes
    if not any(name in at for name in (_VERCEL_PROMPT, *_VERCEL_TEXTS, _VERCEL_CALLS)):
        return None
    found = Conversation("vercel", tools=function_tools(at.get(_VERCEL_TOOLS)))
    found.messages = messages_of_items(at.get(_VERCEL_PROMPT), found.left_out)
    text = next((as_text(at[name]) for name in _VERCEL_TEXTS if at.get(name)), "")
    called = parse_json(at.get(_VERCEL_CALLS))
    calls = [_vercel_call(call) for call in called if is_map(call)] if is_list(called) else []
    thought = at.get(_VERCEL_REASONING)
    if text or calls or thought:
        found.answer = [with_reasoning(_vercel_assistant(text, calls), {"reasoning": thought})]
    return found


def _vercel_assistant(content: object, calls: list[dict[str, Any]]) -> Message:
    message: Message = {"role": "assistant", "content": content}
    return message if not calls else {**message, "content": content or None, "tool_calls": calls}


def _vercel_call(part: Mapping[str, Any]) -> dict[str, Any]:
    return tool_call(part.get("toolCallId"), part.get("toolName"), part.get("args", part.get("input")))


PYDANTIC_AI = "pydantic_ai"


def read_pydantic_ai(span: SpanRecord) -> Conversation | None:
    """``events`` of a call; of an agent's run ``all_messages_events``, or ``pydantic_ai.all_messages``."""
    at = span.attributes
    for name in ("events", "all_messages_events"):
        events = parse_json(at.get(name))
        if is_list(events):
            named = [(str(event.get("event.name")), event) for event in events if is_map(event)]
            return _ended(conversation_of_events(PYDANTIC_AI, named))
    if "pydantic_ai.all_messages" in at:
        found = Conversation(PYDANTIC_AI)
        found.messages = messages_of_items(at["pydantic_ai.all_messages"], found.left_out)
        return _ended(found)
    return None


def _ended(found: Conversation) -> Conversation:
    """The last message of a run is its answer."""
    if not found.answer and found.messages and found.messages[-1]["role"] == "assistant":
        found.answer = [found.messages.pop()]
    return found


Reader = Callable[[SpanRecord], Conversation | None]
"""A span -> its call's messages; ``None`` where it speaks another dialect. Never raises, changes nothing."""

READERS: tuple[Reader, ...] = (
    read_recorded,
    read_flattened,
    read_parts,
    read_details,
    read_openinference,
    read_weave,
    read_kept_bodies,
    read_vercel,
    read_pydantic_ai,
    read_events,
    read_litellm_legacy,
)
"""The first that finds messages is believed."""


def read_conversation(span: SpanRecord) -> Conversation | None:
    """The conversation of ``span``; ``None`` when it has no messages."""
    for reader in READERS:
        found = reader(span)
        if found is not None and (found.messages or found.answer):
            found.incomplete = why_incomplete(span)
            return found
    return None
