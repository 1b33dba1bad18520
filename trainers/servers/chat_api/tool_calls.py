"""Tools in a chat: which are offered, and which calls a model's text makes, in the form of Hermes and Qwen. Pure.

A call is written ``<tool_call>{"name": …, "arguments": …}</tool_call>``. What is made of the text is what vLLM makes of
it with ``--tool-call-parser hermes``: a text with a call that is no JSON is content, all of it.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BEGIN, END = "<tool_call>", "</tool_call>"

CALLS = re.compile(f"{BEGIN}(.*?){END}|{BEGIN}(.*)", re.DOTALL)

XML_CALL = "<function="
"""Inside of ``<tool_call>``: the form of Qwen's coder models, which has no JSON."""


@dataclass(frozen=True, slots=True)
class Said:
    """The content of a message.

    Attributes:
        content: its text before the first call; ``None`` if that is empty.
        tool_calls: its calls as OpenAI writes them, each with an id of its own.
    """

    content: str | None
    tool_calls: Sequence[dict[str, Any]] = ()


def read_tool_calls(text: str, *, parallel: bool = True) -> Said:
    """Content and calls of a whole answer; only the first call unless ``parallel``."""
    calls: list[dict[str, Any]] = []
    try:
        for closed, unclosed in CALLS.findall(text):
            document: Any = json.loads(closed or unclosed)
            calls.append(_call(str(document["name"]), json.dumps(document["arguments"], ensure_ascii=False)))
    except (ValueError, KeyError, TypeError, RecursionError):
        calls = []
    if not calls:
        return Said(text)
    return Said(text[: text.find(BEGIN)] or None, calls if parallel else calls[:1])


def content_length(text: str) -> int:
    """Count the characters of an unfinished answer that are content, whatever follows."""
    begin = text.find(BEGIN)
    if begin >= 0:
        return begin
    overlap = next((size for size in range(len(BEGIN) - 1, 0, -1) if text.endswith(BEGIN[:size])), 0)
    return len(text) - overlap


def call_deltas(calls: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls as a stream's delta has them."""
    return [{"index": index} | call for index, call in enumerate(calls)]


def how_calls_are_written(template: str) -> str | None:
    """Why calls of a model with this chat template cannot be read, or ``None`` if they can."""
    if not re.search(r"\btools\b", template):
        return "has no place for tools"
    if BEGIN not in template or XML_CALL in template:
        return f"has calls in another form than {BEGIN}{{JSON}}{END}"
    return None


def parse_arguments(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The calls of a message of the conversation, with arguments as chat templates take them: an object, not its text.

    As in vLLM, arguments that are no object become an empty one, so that the conversation can go on.

    Raises:
        ValueError: they are no calls of functions.
    """
    calls: Any = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise ValueError("tool_calls must be a list")
    parsed: list[dict[str, Any]] = []
    for call in calls:
        function: Any = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise ValueError("each of tool_calls must be an object with a function that has a name")
        arguments: Any = function.get("arguments")
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except (ValueError, RecursionError):
                arguments = {}
        parsed.append(call | {"function": function | {"arguments": arguments if isinstance(arguments, dict) else {}}})
    return parsed


def _call(name: str, arguments: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-tool-{uuid.uuid4().hex}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
