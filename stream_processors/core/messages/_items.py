"""Chat messages of a list, whatever writes it: each item is recognised by its shape.

OpenAI's chat messages and the items of its Responses, OpenTelemetry's messages of parts, Anthropic's content blocks,
Bedrock's, Gemini's, Vercel's and LangChain's messages. Exporters write any of them under the names of any convention.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..dialects import is_list, is_map, parse_json
from ._conversation import Message, as_text, content_part, openai_call, tool_call


def is_chat_message(value: object) -> bool:
    """Whether it is a message as OpenAI's chat interface has it, so that nothing of it needs another shape."""
    if not is_map(value) or not isinstance(value.get("role"), str) or "parts" in value or value["role"] == "model":
        return False
    content = value.get("content")
    if not is_list(content):
        return content is None or isinstance(content, str)
    return all(is_map(part) and (part.get("type") == "text" or _is_openais(part)) for part in content)


def _is_openais(part: Mapping[str, Any]) -> bool:
    """Whether it is one of OpenAI's parts, which have what they hold under the name of their type."""
    kind = part.get("type")
    return isinstance(kind, str) and kind in _OPENAI_PARTS and part.get(kind) is not None


def messages_of_items(values: object, left_out: list[str]) -> list[Message]:
    """The messages of a list (structured or as JSON), in its order.

    Args:
        left_out: gets the kind of each item or part that is no message, or has no place in one.
    """
    reader = _Reader(left_out)
    for value in _listed(values):
        reader.add(value)
    return reader.end()


def choices_of_items(values: object, left_out: list[str]) -> list[list[Message]]:
    """The answers of a list: one a message. Of each the messages up to it, which the model server may have made on the
    way (its own tool's call and result); the last is the answer. A list of Responses' items is one answer."""
    listed = _listed(values)
    if any(_kind_of_item(value) is not None for value in listed):
        choices = [messages_of_items(listed, left_out)]
    else:
        choices = [messages_of_items([value], left_out) for value in listed]
    return [ended for choice in choices if (ended := _up_to_answer(choice, left_out))]


def _up_to_answer(messages: list[Message], left_out: list[str]) -> list[Message]:
    if not messages:
        return []
    last = max((i for i, message in enumerate(messages) if message["role"] == "assistant"), default=len(messages) - 1)
    left_out.extend(f"{message['role']} message after the answer" for message in messages[last + 1 :])
    return messages[: last + 1]


def _listed(values: object) -> list[Any]:
    parsed = parse_json(values)
    if is_map(parsed):
        return [parsed]
    items = list(parsed) if is_list(parsed) else []
    return list(items[0]) if len(items) == 1 and is_list(items[0]) else items  # LangChain: a batch of one conversation


_CALL, _OUTPUT, _REASONING, _MESSAGE = "call", "output", "reasoning", "message"


def _kind_of_item(value: object) -> str | None:
    """What an item of OpenAI's Responses is; ``None`` for anything else."""
    kind = value.get("type") if is_map(value) else None
    if not is_map(value) or not isinstance(kind, str):
        return None
    if kind in (_MESSAGE, _REASONING):
        return kind if kind == _REASONING or isinstance(value.get("role"), str) else None
    if kind.endswith("_call_output"):
        return _OUTPUT
    return _CALL if kind.endswith("_call") and kind != "tool_call" else None


_ROLES = {
    "human": "user",
    "humanmessage": "user",
    "humanmessagechunk": "user",
    "ai": "assistant",
    "aimessage": "assistant",
    "aimessagechunk": "assistant",
    "model": "assistant",
    "system": "system",
    "systemmessage": "system",
    "tool": "tool",
    "toolmessage": "tool",
    "function": "tool",
}
"""LangChain's types and Gemini's role -> OpenAI's role."""


class _Reader:
    def __init__(self, left_out: list[str]) -> None:
        self._left_out = left_out
        self._messages: list[Message] = []
        self._turn: Message | None = None
        """The assistant's message that further items of its turn join."""
        self._reasoning: list[str] = []
        """What was thought before the message that it belongs to."""

    def add(self, value: object) -> None:
        if isinstance(value, str):
            self._put({"role": "user", "content": value})
        elif not is_map(value):
            self._left_out.append(type(value).__name__)
        elif (kind := _kind_of_item(value)) is not None:
            self._add_item(kind, value)
        elif is_map(value.get("kwargs")) and is_list(value.get("id")):  # LangChain's own JSON
            self._add_message({"type": str(value["id"][-1]) if value["id"] else "", **value["kwargs"]})
        elif is_map(value.get("message")) and "role" not in value:  # a choice
            self.add(value["message"])
        else:
            self._add_message(value)

    def end(self) -> list[Message]:
        if self._reasoning:  # it was cut while it thought
            self._put({"role": "assistant", "content": ""})
        return self._messages

    def _put(self, message: Message) -> Message:
        if self._reasoning and message["role"] == "assistant":
            message["reasoning_content"] = "\n".join([*self._reasoning, *_texts(message.get("reasoning_content"))])
            self._reasoning = []
        self._messages.append(message)
        self._turn = None
        return message

    def _add_item(self, kind: str, item: Mapping[str, Any]) -> None:
        if kind == _REASONING:
            found = [*_texts(item.get("content")), *_texts(item.get("summary"))]
            self._reasoning += found
            if not found:
                self._left_out.append("encrypted reasoning" if item.get("encrypted_content") else "empty reasoning")
        elif kind == _MESSAGE:
            messages = self._messages_of(str(item["role"]), item)
            for message in messages:
                self._put(message)
            if messages and messages[-1]["role"] == "assistant":
                self._turn = messages[-1]
        elif kind == _OUTPUT:
            self._put(_result(item.get("call_id") or item.get("id"), item.get("output")))
        else:
            self._add_call(item)

    def _add_call(self, item: Mapping[str, Any]) -> None:
        """A call, of ours or of a tool that the server runs: then its result may be in it."""
        call_id = item.get("call_id") or item.get("id")
        name = item.get("name") or str(item["type"]).removesuffix("_call")
        arguments = next((item[key] for key in ("arguments", "input", "action") if item.get(key) is not None), None)
        if arguments is None:
            arguments = {key: item[key] for key in ("code", "queries") if item.get(key) is not None}
        turn = self._turn
        if turn is None or self._reasoning:
            turn = self._put({"role": "assistant", "content": None})
        turn["content"] = turn["content"] or None
        turn.setdefault("tool_calls", []).append(tool_call(call_id, name, arguments))
        self._turn = turn
        result = next((item[key] for key in ("output", "outputs", "results") if item.get(key) is not None), None)
        if result is not None:
            self._put(_result(call_id, result))

    def _add_message(self, value: Mapping[str, Any]) -> None:
        kind = value.get("type")
        role = value.get("role")
        if not isinstance(role, str) and isinstance(kind, str):
            role = _ROLES.get(kind.lower())
        if not isinstance(role, str):
            self._left_out.append(f"item of type {kind}" if isinstance(kind, str) else "item without a role")
            return
        for message in self._messages_of("assistant" if role == "model" else role, value):
            self._put(message)

    def _messages_of(self, role: str, value: Mapping[str, Any]) -> list[Message]:
        """A message, or several: each result of a tool is one of its own."""
        blocks = value.get("parts") if is_list(value.get("parts")) else value.get("content")
        parts = _Parts(role, self._left_out)
        if is_list(blocks):
            for block in blocks:
                parts.add(block)
        elif blocks is not None:
            parts.content.append({"type": "text", "text": as_text(blocks)})
        more = value.get("additional_kwargs")
        for holder in (value, more if is_map(more) else {}):
            beside = parse_json(holder.get("tool_calls"))
            if not parts.calls and is_list(beside):
                parts.calls += [openai_call(call) for call in beside if is_map(call)]
            if not parts.reasoning:
                names = ("reasoning_content", "reasoning", "thinking")
                parts.reasoning += next((found for name in names if (found := _texts(holder.get(name)))), [])
        legacy = value.get("function_call")
        if not parts.calls and is_map(legacy):
            parts.calls.append(openai_call({"function": legacy}))
        if value.get("audio") is not None:
            self._left_out.append("audio of a message")
        of_call = value.get("tool_call_id")
        if isinstance(value.get("refusal"), str) and value["refusal"]:
            parts.refusal = value["refusal"]
        parts.flush(always=not parts.done, tool_call_id=of_call if isinstance(of_call, str) else None)
        name = value.get("name")
        if isinstance(name, str) and name and "parts" not in value and role != "tool":
            for message in parts.done:
                message["name"] = name
        return parts.done


_TEXT = frozenset({"text", "input_text", "output_text", "summary_text"})
_THOUGHT = frozenset({"reasoning", "thinking", "reasoning_text", "reasoningContent"})
_CALLS = frozenset(
    {"tool_call", "tool-call", "tool_use", "toolUse", "functionCall", "function_call"}
    | {"server_tool_call", "server_tool_use", "mcp_tool_use"}
)
_RESULTS = frozenset(
    {"tool_call_response", "tool-result", "tool_result", "toolResult", "functionResponse", "function_response"}
    | {"server_tool_call_response"}
)
_RESULT_END = "_tool_result"
_OPENAI_PARTS = frozenset({"image_url", "input_audio", "file", "video_url", "refusal"})
_BY_KEY = ("text", "reasoningContent", "toolUse", "toolResult", "functionCall", "functionResponse")
"""Bedrock's and Gemini's parts have no type: their one key says what they are."""
_IDS = ("id", "toolCallId", "tool_call_id", "toolUseId", "tool_use_id", "call_id")


class _Parts:
    """The parts of one message, in order."""

    def __init__(self, role: str, left_out: list[str]) -> None:
        self.role = role
        self.left_out = left_out
        self.done: list[Message] = []
        self.content: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []
        self.reasoning: list[str] = []
        self.refusal = ""

    def add(self, part: object) -> None:
        if isinstance(part, str):
            self.content.append({"type": "text", "text": part})
            return
        if not is_map(part):
            self.left_out.append(f"part of type {type(part).__name__}")
            return
        kind = part.get("type", part.get("kind"))
        kind = kind if isinstance(kind, str) else next((key for key in _BY_KEY if part.get(key) is not None), "")
        inner = part.get(kind)
        held = inner if is_map(inner) else part
        if kind in _THOUGHT or (kind == "text" and part.get("thought") is True):
            self._add_reasoning(part, held)
        elif kind in _CALLS:
            name = _first(held, "name", "toolName", "tool_name") or part.get("name")
            arguments = next((held[key] for key in ("arguments", "args", "input") if held.get(key) is not None), None)
            if arguments is None and held is not part:  # OpenTelemetry's, whose rest is what was arguments
                arguments = {key: value for key, value in held.items() if key not in ("type", "name", "id")}
            self.calls.append(tool_call(_first(held, *_IDS) or _first(part, *_IDS) or name, name, arguments))
        elif kind in _RESULTS or kind.endswith(_RESULT_END):
            self.flush()
            call_id = _first(held, *_IDS) or _first(part, *_IDS) or _first(held, "name")
            self.done.append(_result(call_id, _given(held, part) if inner is None or is_map(inner) else inner))
        elif kind == "refusal":
            self.refusal = as_text(part.get("refusal", ""))
        elif (found := content_part(part, kind)) is not None:
            self.content.append(found)
        elif _is_openais(part):
            self.content.append(dict(part))
        else:
            self.left_out.append(f"part of type {kind or 'unknown'}")

    def _add_reasoning(self, part: Mapping[str, Any], held: Mapping[str, Any]) -> None:
        names = ("content", "text", "thinking", "reasoning", "reasoningText", "summary")
        found = next((texts for name in names if (texts := _texts(held.get(name)))), [])
        if found and self.role == "assistant":
            self.reasoning += found
        else:
            self.left_out.append(f"part of type {part.get('type') or 'reasoning'}")

    def flush(self, *, always: bool = False, tool_call_id: str | None = None) -> None:
        """End a message, where there is something to say.

        Args:
            always: an empty one, too.
        """
        if not (self.content or self.calls or self.reasoning or self.refusal or always):
            return
        texts = all(part["type"] == "text" for part in self.content)
        content: Any = "".join(part["text"] for part in self.content) if texts else self.content
        message: Message = {"role": self.role, "content": content}
        if self.reasoning:
            message["reasoning_content"] = "\n".join(self.reasoning)
        if self.refusal:
            message["refusal"] = self.refusal
        if self.calls:
            message["content"] = content or None
            message["tool_calls"] = self.calls
        if tool_call_id is not None and self.role == "tool":
            message["tool_call_id"] = tool_call_id
        self.done.append(message)
        self.content, self.calls, self.reasoning, self.refusal = [], [], [], ""


def _given(held: Mapping[str, Any], part: Mapping[str, Any]) -> object:
    """What a tool gave: under one of the names there are, else all that is in it."""
    for holder in (held, part):
        for name in ("response", "result", "output", "content"):
            if holder.get(name) is not None:
                return holder[name]
    return {key: value for key, value in held.items() if key not in ("type", *_IDS)} if held is not part else ""


def _result(call_id: object, value: object) -> Message:
    """A tool's message: text, also of parts of text; anything else as JSON."""
    if is_map(value) and isinstance(value.get("type"), str) and "value" in value:  # Vercel's, which names its kind
        value = value["value"]
    if is_list(value) and value and all(is_map(item) and isinstance(item.get("text"), str) for item in value):
        value = "".join(item["text"] for item in value)
    return {"role": "tool", "content": as_text("" if value is None else value), "tool_call_id": str(call_id or "")}


def _texts(value: object) -> list[str]:
    """Texts that say something: of text, of a part, or of a list of them."""
    if isinstance(value, str):
        return [value] if value else []
    if is_map(value):
        return _texts(value.get("text"))
    return [text for item in value for text in _texts(item)] if is_list(value) and not _deep(value) else []


def _deep(values: Iterable[Any]) -> bool:
    return any(is_list(value) for value in values)


def _first(holder: Mapping[str, Any], *names: str) -> str:
    return next((value for name in names if isinstance(value := holder.get(name), str) and value), "")
