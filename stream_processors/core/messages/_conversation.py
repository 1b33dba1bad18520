"""A call's messages as OpenAI's chat API takes them, from the shapes in which spans record them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..dialects import is_list, is_map, parse_json

Content = str | list[dict[str, Any]]
"""A message's ``content`` as OpenAI's API takes it: text, or parts where there is more than text."""

_TEXT = frozenset({"text", "input_text", "output_text"})
_IMAGE_BY_NAME = frozenset({"image", "image-url"})
_IMAGES = _IMAGE_BY_NAME | {"uri", "blob", "binary", "file"}
_IMAGE_VALUES = ("uri", "url", "content", "data", "image")
_MEDIA_TYPES = ("mime_type", "media_type", "mediaType", "mimeType")
_URL_BEGINS = ("http://", "https://", "data:")
_ANY_IMAGE = "image/png"
"""Media type of an image that names none: readers of data URLs look at the image itself."""


def content_of(value: object) -> Content:
    """Text as it is; of a list its texts joined, unless there are images among them. What is neither is left out."""
    if isinstance(value, str):
        return value
    parts = [part for item in value if (part := _part(item)) is not None] if is_list(value) else []
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def text_of(content: object) -> str:
    """The text of a message's content."""
    if isinstance(content, str):
        return content
    parts = [part.get("text") for part in content if is_map(part)] if is_list(content) else []
    return "".join(part for part in parts if isinstance(part, str))


def _part(value: object) -> dict[str, Any] | None:
    if isinstance(value, str):
        return {"type": "text", "text": value}
    if not is_map(value):
        return None
    kind = value.get("type", value.get("kind", "text"))
    return content_part(value, kind) if isinstance(kind, str) else None


def content_part(value: Mapping[str, Any], kind: str) -> dict[str, Any] | None:
    """Text or an image of a message; ``None`` for anything else."""
    if kind in _TEXT:
        text = value.get("content", value.get("text"))
        return {"type": "text", "text": text} if isinstance(text, str) else None
    if kind in ("image_url", "input_image"):
        image = value.get("image_url")
        if kind == "input_image":
            return {"type": "image_url", "image_url": {"url": image}} if isinstance(image, str) else None
        return {"type": kind, "image_url": dict(image) if is_map(image) else {"url": str(image)}}
    source = value.get("source")
    inner = source if is_map(source) else value  # Anthropic's
    url = _image(kind, inner) if kind in _IMAGES else None
    return None if url is None else {"type": "image_url", "image_url": {"url": url}}


def _image(kind: str, part: Mapping[str, Any]) -> str | None:
    """GenAI's ``uri`` and ``blob``, Pydantic AI's ``image-url`` and ``binary``, Vercel's ``image`` and ``file``."""
    media_type = _first(part, _MEDIA_TYPES) or ""
    value = _first(part, _IMAGE_VALUES)
    is_image = kind in _IMAGE_BY_NAME or part.get("modality") == "image" or media_type.startswith("image/")
    if value is None or not is_image:
        return None
    if kind in {"uri", "image-url"} or value.startswith(_URL_BEGINS):
        return value
    return f"data:{media_type or _ANY_IMAGE};base64,{value}"


def _first(part: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    found = (part.get(name) for name in names)
    return next((value for value in found if isinstance(value, str) and value), None)


Message = dict[str, Any]
"""``role``, ``content``, and where they apply ``tool_calls``, ``tool_call_id``, ``name``."""


@dataclass(slots=True)
class Conversation:
    """One call.

    Attributes:
        messages: what was sent, in order.
        answer: what came back: one assistant message a choice.
        tools: the tools on offer, as OpenAI's function tools; ``None`` where the span names none.
        source: name of the reader.
        before: of each choice, what the model server did on the way to it: calls of its own tools, and their results.
        left_out: kinds of what the span has and no message can hold.
        incomplete: why part of the conversation is missing; empty where nothing shows that it is.
    """

    source: str
    messages: list[Message] = field(default_factory=list[Message])
    answer: list[Message] = field(default_factory=list[Message])
    tools: list[dict[str, Any]] | None = None
    before: list[list[Message]] = field(default_factory=list[list[Message]])
    left_out: list[str] = field(default_factory=list[str])
    incomplete: str = ""

    def take_answers(self, choices: Sequence[Sequence[Message]]) -> None:
        """Take the choices of an answer: of each, the messages up to it."""
        self.answer = [choice[-1] for choice in choices]
        self.before = [list(choice[:-1]) for choice in choices] if any(len(choice) > 1 for choice in choices) else []

    def choice(self, index: int) -> Message:
        """A choice of the answer: the first where the span has fewer, empty where it has none."""
        if not self.answer:
            return {}
        return self.answer[index if index < len(self.answer) else 0]

    def whole(self, choice_index: int) -> list[Message]:
        """The messages sent, then this choice of the answer, as far as the span has them."""
        chosen = self.choice(choice_index)
        return [*self.messages, *self.before_choice(choice_index), chosen] if chosen else list(self.messages)

    def before_choice(self, index: int) -> list[Message]:
        """Operations on the way to a choice of the answer."""
        if not self.before:
            return []
        return self.before[index if index < len(self.before) else 0]


def message_of(value: object) -> Message | None:
    """A chat message as OpenAI's API takes it, as it is, and its thoughts as ``reasoning_content``; ``None`` for
    anything else."""
    if not is_map(value) or not isinstance(value.get("role"), str):
        return None
    message = {str(key): item for key, item in value.items() if item is not None or key == "content"}
    reasoning = message.get("reasoning")  # vLLM's name of it
    if isinstance(reasoning, str) and not message.get("reasoning_content"):
        del message["reasoning"]
        if reasoning:
            message["reasoning_content"] = reasoning
    return message


def with_reasoning(message: Message, holder: Mapping[str, Any]) -> Message:
    """The message with the thoughts before it, where the holder has these as text. Changes the message."""
    found = (holder.get(name) for name in ("reasoning_content", "reasoning", "thinking"))
    thought = next((text for text in found if isinstance(text, str) and text), None)
    if thought is not None and message["role"] == "assistant":
        message["reasoning_content"] = thought
    return message


def tool_call(call_id: object, name: object, arguments: object) -> dict[str, Any]:
    """One of an assistant message's ``tool_calls``; arguments become JSON text."""
    text = arguments if isinstance(arguments, str) else as_text({} if arguments is None else arguments)
    return {
        "id": str(call_id or ""),
        "type": "function",
        "function": {"name": str(name or ""), "arguments": text},
    }


def openai_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """As :func:`tool_call`, from a tool call with its function inside or spread out beside its id."""
    function = call.get("function")
    inner = function if is_map(function) else call
    return tool_call(call.get("id"), inner.get("name"), inner.get("arguments", inner.get("args")))


def function_tools(values: object) -> list[dict[str, Any]] | None:
    """The tools on offer, structured or as JSON; ``None`` where there are none."""
    values = parse_json(values)
    if not is_list(values):
        return None
    return [tool for value in values if (tool := _function_tool(value)) is not None] or None


def _function_tool(value: object) -> dict[str, Any] | None:
    """A tool on offer, from any of the shapes it is recorded in."""
    value = parse_json(value)
    if not is_map(value):
        return None
    if isinstance(value.get("function"), dict):
        return dict(value)
    if not isinstance(value.get("name"), str):
        return None
    parameters = parse_json(next((value[name] for name in _PARAMETERS if name in value), None))
    return {
        "type": "function",
        "function": {
            "name": value["name"],
            "description": value.get("description") or "",
            "parameters": dict(parameters) if is_map(parameters) else {},
        },
    }


_PARAMETERS = ("parameters", "input_schema", "inputSchema")


def as_text(value: object, *, sort_keys: bool = False) -> str:
    """Text as it is, anything else as JSON; values without JSON (keys that are no text, say) as Python shows them."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str, sort_keys=sort_keys)
    except (TypeError, ValueError, RecursionError):
        return _shown(value)


def _shown(value: object) -> str:
    try:
        return repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits; nested too deeply
        return f"<{type(value).__name__}>"


def messages_of(values: object) -> list[Message]:
    """The chat messages of a list; anything else is left out."""
    if not is_list(values):
        return []
    found: Sequence[Message | None] = [message_of(value) for value in values]
    return [message for message in found if message is not None]
