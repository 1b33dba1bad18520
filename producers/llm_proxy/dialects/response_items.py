"""Items of OpenAI's responses that a chat server has no words for: as calls of functions and back, or refused by name.

https://platform.openai.com/docs/api-reference/responses/create, under ``input`` and ``tools``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pydantic_core import to_json

from ..json_text import read_json
from ..tool_calls import ToolCall


@dataclass(frozen=True, slots=True)
class _ClientTool:
    """A tool that the model was trained to use and the agent runs.

    Attributes:
        item, result: types of the items of its calls and of their results.
        field: where an item has its arguments, which have ``told`` beside what the model says.
        text: name of the argument that takes what the model said, where that is no object.
        parameters: JSON schema of the function that stands for it.
    """

    item: str
    result: str
    field: str
    constants: Mapping[str, Any]
    text: str
    description: str
    parameters: Mapping[str, Any]


_WORDS = {"type": "array", "items": {"type": "string"}}
_TEXT = {"type": "string"}
_NUMBER = {"type": "integer"}

CLIENT_TOOLS: Mapping[str, _ClientTool] = MappingProxyType(
    {
        "local_shell": _ClientTool(
            "local_shell_call",
            "local_shell_call_output",
            "action",
            {"type": "exec", "command": [], "env": {}},
            "command",
            "Runs a command, given as a list of words, and returns what it prints.",
            {"command": _WORDS, "working_directory": _TEXT, "timeout_ms": _NUMBER},
        ),
        "shell": _ClientTool(
            "shell_call",
            "shell_call_output",
            "action",
            {"commands": []},
            "commands",
            "Runs commands of a shell and returns what they print.",
            {"commands": _WORDS, "timeout_ms": _NUMBER, "max_output_length": _NUMBER},
        ),
        "apply_patch": _ClientTool(
            "apply_patch_call",
            "apply_patch_call_output",
            "operation",
            {},
            "diff",
            "Creates, updates or deletes a file.",
            {
                "type": {"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
                "path": _TEXT,
                "diff": _TEXT,
            },
        ),
    }
)
"""Type of the tool, and name of the function -> tool."""

_OF_ITEM = {tool.item: (name, tool) for name, tool in CLIENT_TOOLS.items()}
_RESULTS = frozenset(tool.result for tool in CLIENT_TOOLS.values())

_TRANSLATED = frozenset(
    {
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "web_search_call",
    }
)
"""Items that LiteLLM translates."""


def as_functions(tools: Any) -> Any:
    """The tools of a request, with a function in place of each that only the agent can run."""
    if not isinstance(tools, list):
        return tools
    return [_as_function(tool) for tool in tools]


def is_client_tool(tool: Any) -> bool:
    """True for the tool of a request that only the agent can run."""
    return isinstance(tool, dict) and isinstance(tool.get("type"), str) and tool["type"] in CLIENT_TOOLS


def _as_function(tool: Any) -> Any:
    if not is_client_tool(tool):
        return tool
    kind = tool["type"]
    known = CLIENT_TOOLS[kind]
    parameters = {"type": "object", "properties": dict(known.parameters), "required": [next(iter(known.parameters))]}
    return {"type": "function", "name": kind, "description": known.description, "parameters": parameters}


def function_items(items: Iterable[Any]) -> list[Any]:
    """The items of an input as LiteLLM translates them.

    Raises:
        ValueError: one is of a type that has no translation; says which.
    """
    return [_function_item(item, number) for number, item in enumerate(items)]


def _function_item(item: Any, number: int) -> Any:
    if not isinstance(item, dict):
        raise ValueError(f"input[{number}] must be an object, not {type(item).__name__}")
    kind = item.get("type", "message")
    call_id = item.get("call_id") or item.get("id")
    if kind in _TRANSLATED:
        return item
    if kind in _OF_ITEM:
        name, tool = _OF_ITEM[kind]
        arguments = to_json(item.get(tool.field) or {}).decode()
        return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
    if kind in _RESULTS:
        output = item.get("output")
        text = output if isinstance(output, str) else to_json(item.get("status") if output is None else output).decode()
        return {"type": "function_call_output", "call_id": call_id, "output": text}
    raise ValueError(
        f"input[{number}] is a {kind!r}, which cannot be told to a chat server; leave it out, or send its content as a "
        "message"
    )


def item_of_client_tool(call: ToolCall) -> dict[str, Any] | None:
    """The item of a call of such a tool; ``None`` for another's."""
    tool = CLIENT_TOOLS.get(call.name)
    if tool is None:
        return None
    try:
        arguments = read_json(call.arguments.encode())
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        arguments = {tool.text: [call.arguments] if tool.parameters[tool.text] is _WORDS else call.arguments}
    return {"type": tool.item, "call_id": call.id, tool.field: {**tool.constants, **arguments}}
