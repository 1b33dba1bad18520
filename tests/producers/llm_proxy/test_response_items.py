"""Items of a responses history that chat servers do not know: translated both ways, or refused by name."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest

from lightstream.producers.llm_proxy.dialects import ANTHROPIC_MESSAGES, ResponsesDialect
from tests.producers.llm_proxy.upstreams import ScriptedUpstream, completion, streamed

USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "list"}]}
EXEC = {"type": "exec", "command": ["ls"], "env": {}}


def _messages(*items: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    request = {"model": "m", "input": [USER, *items]} | fields
    translated = asyncio.run(ResponsesDialect().translate(request)).request["messages"]
    return list(translated)


@pytest.mark.parametrize(
    ("call", "output", "name", "arguments"),
    [
        (
            {"type": "local_shell_call", "call_id": "c", "action": EXEC},
            {"type": "local_shell_call_output", "call_id": "c", "output": "a.txt"},
            "local_shell",
            EXEC,
        ),
        (
            {"type": "local_shell_call", "id": "c", "action": EXEC},
            {"type": "local_shell_call_output", "id": "c", "output": "a.txt"},
            "local_shell",
            EXEC,
        ),
        (
            {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
            {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "a.txt", "stderr": ""}]},
            "shell",
            {"commands": ["ls"]},
        ),
        (
            {"type": "apply_patch_call", "call_id": "c", "operation": {"type": "delete_file", "path": "a.txt"}},
            {"type": "apply_patch_call_output", "call_id": "c", "status": "completed"},
            "apply_patch",
            {"type": "delete_file", "path": "a.txt"},
        ),
        (
            {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "a.txt"},
            {"type": "custom_tool_call_output", "call_id": "c", "output": "a.txt"},
            "patch",
            {"content": "a.txt"},
        ),
    ],
)
def test_a_call_and_its_result_stay_together(
    call: dict[str, Any], output: dict[str, Any], name: str, arguments: dict[str, Any]
) -> None:
    _, called, result = _messages(call, output)
    (made,) = called["tool_calls"]
    assert (made["id"], made["function"]["name"], json.loads(made["function"]["arguments"])) == ("c", name, arguments)
    assert (result["role"], result["tool_call_id"]) == ("tool", "c")
    assert "a.txt" in json.dumps(result["content"]) or "completed" in json.dumps(result["content"])


@pytest.mark.parametrize(
    "kind", ["computer_call", "file_search_call", "mcp_call", "item_reference", "code_interpreter_call", "unheard_of"]
)
def test_an_item_without_translation_is_refused_by_name(kind: str) -> None:
    with pytest.raises(ValueError, match=rf"input\[1\] is a '{kind}'"):
        _messages({"type": kind, "id": "x", "call_id": "c"})


def test_a_result_without_its_call_is_refused_on_every_interface() -> None:
    with pytest.raises(ValueError, match="result of the tool call 'c9', but not the call"):
        _messages({"type": "function_call_output", "call_id": "c9", "output": "2"})
    block = {"type": "tool_result", "tool_use_id": "c9", "content": "2"}
    request = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": [block]}]}
    with pytest.raises(ValueError, match="result of the tool call 'c9', but not the call"):
        asyncio.run(ANTHROPIC_MESSAGES.translate(request))


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("arguments", ['{"command": ["ls", "-l"]}', "ls -l"])
def test_the_tool_of_an_agent_is_called_in_its_own_words(
    client: openai.OpenAI, upstream: ScriptedUpstream, streams: bool, arguments: str
) -> None:
    made = {"index": 0, "id": "c", "type": "function", "function": {"name": "local_shell", "arguments": arguments}}
    patch = {"index": 1, "id": "d", "type": "function", "function": {"name": "patch", "arguments": '{"content": "x"}'}}
    said: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [made, patch]}
    head = {"id": "1", "model": "m", "created": 1}
    choice: dict[str, Any] = {"index": 0, "finish_reason": "tool_calls"}
    whole = completion(choices=[choice | {"message": said}])
    upstream.answer = lambda _: streamed(head | {"choices": [choice | {"delta": said}]}) if streams else whole
    tools: Any = [{"type": "local_shell"}, {"type": "custom", "name": "patch"}]
    asked: dict[str, Any] = {"model": "m", "input": "list", "tools": tools}
    if streams:
        events = list(client.responses.create(**asked, stream=True))
        response: Any = next(event.response for event in events if event.type == "response.completed")
        kinds = [event.type for event in events]
        assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done") == 2
        assert "response.custom_tool_call_input.done" in kinds
    else:
        response = client.responses.create(**asked)
    shell, custom = response.output
    command = ["ls", "-l"] if arguments.startswith("{") else ["ls -l"]
    assert (shell.type, shell.call_id, shell.action.command) == ("local_shell_call", "c", command)
    assert (custom.type, custom.call_id, custom.name, custom.input) == ("custom_tool_call", "d", "patch", "x")
    assert [tool["function"]["name"] for tool in upstream.asked[0]["tools"]] == ["local_shell", "patch"]
