"""What an agent of each interface understands of an answer, whole or streamed: the same, in one form."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

PATHS = ("chat/completions", "responses", "messages")


@dataclass(slots=True)
class Seen:
    """One choice: texts, calls of tools (id, name, arguments), and why it ended."""

    thinking: str = ""
    text: str = ""
    calls: list[list[Any]] = field(default_factory=list[list[Any]])
    end: tuple[Any, ...] = ()
    usage: tuple[int, int] | None = None


def read(path: str, body: str, *, streams: bool) -> list[Seen]:
    """The choices of an answer."""
    if not streams:
        return _WHOLE[path](json.loads(body))
    lines = [line.removeprefix("data: ") for line in body.split("\n") if line.startswith("data: ")]
    if "[DONE]" in lines:
        assert lines.index("[DONE]") == len(lines) - 1, "something follows the end"
    return _STREAM[path]([json.loads(line) for line in lines if line != "[DONE]"])


def _thinking(message: Json) -> str:
    return next((message[n] for n in ("reasoning_content", "reasoning", "thinking") if message.get(n)), "")


def _chat_usage(usage: Json | None) -> tuple[int, int] | None:
    return None if usage is None else (usage["prompt_tokens"], usage["completion_tokens"])


def _whole_chat(body: Json) -> list[Seen]:
    seen: list[Seen] = []
    for choice in body["choices"]:
        message = choice["message"]
        calls = [[c["id"], c["function"]["name"], c["function"]["arguments"]] for c in message.get("tool_calls") or []]
        end = choice["finish_reason"], choice["stop_reason"]
        usage = _chat_usage(body.get("usage"))
        seen.append(Seen(_thinking(message), message["content"] or "", calls, end, usage))
    return seen


def _stream_chat(chunks: list[Json]) -> list[Seen]:
    """As OpenAI's client accumulates: texts grow, calls go by their index."""
    seen: dict[int, Seen] = {}
    usage: tuple[int, int] | None = None
    for chunk in chunks:
        assert "error" not in chunk, chunk
        usage = _chat_usage(chunk["usage"]) if chunk.get("usage") else usage
        for choice in chunk["choices"]:
            one = seen.setdefault(choice.get("index", 0), Seen(end=(None, None)))
            delta = choice["delta"]
            one.thinking += _thinking(delta)
            one.text += delta.get("content") or ""
            for piece in delta.get("tool_calls") or []:
                if piece["index"] == len(one.calls):
                    one.calls.append(["", "", ""])
                call, function = one.calls[piece["index"]], piece["function"]
                for place, value in enumerate((piece.get("id"), function.get("name"), function.get("arguments"))):
                    call[place] += value or ""
            if choice.get("finish_reason") or choice.get("stop_reason"):
                one.end = choice.get("finish_reason"), choice.get("stop_reason")
    for one in seen.values():
        one.usage = usage
    return [seen[index] for index in sorted(seen)]


def _whole_response(body: Json) -> list[Seen]:
    one = Seen(end=(body["status"], body["incomplete_details"]))
    for item in body["output"]:
        if item["type"] == "reasoning":
            one.thinking += "".join(part["text"] for part in item["summary"])
        elif item["type"] == "message":
            one.text += "".join(part["text"] for part in item["content"])
        else:
            one.calls.append([item["call_id"], item["name"], item["arguments"]])
    one.usage = body["usage"]["input_tokens"], body["usage"]["output_tokens"]
    return [one]


def _stream_response(events: list[Json]) -> list[Seen]:
    """From the deltas; the last event has the whole, which has to be the same."""
    one, calls = Seen(), dict[int, list[Any]]()
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for event in events:
        kind = event["type"].removeprefix("response.")
        if kind == "reasoning_summary_text.delta":
            one.thinking += event["delta"]
        elif kind == "output_text.delta":
            one.text += event["delta"]
        elif kind == "output_item.added" and event["item"]["type"] == "function_call":
            calls[event["output_index"]] = [event["item"]["call_id"], event["item"]["name"], ""]
        elif kind == "function_call_arguments.delta":
            calls[event["output_index"]][2] += event["delta"]
    assert events[-1]["type"] in ("response.completed", "response.incomplete"), events[-1]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    output = events[-1]["response"]["output"]
    assert sorted(map(json.dumps, done)) == sorted(map(json.dumps, output))
    (whole,) = _whole_response(events[-1]["response"])
    one.calls = [calls[place] for place in sorted(calls)]
    one.end, one.usage = whole.end, whole.usage
    assert one == whole
    return [one]


def _whole_message(body: Json) -> list[Seen]:
    one = Seen(end=(body["stop_reason"], body["stop_sequence"]))
    for block in body["content"]:
        if block["type"] == "tool_use":
            one.calls.append([block["id"], block["name"], block["input"]])
        elif block["type"] == "thinking":
            one.thinking += block["thinking"]
        else:
            one.text += block["text"]
    one.usage = body["usage"]["input_tokens"], body["usage"]["output_tokens"]
    return [one]


def _stream_message(events: list[Json]) -> list[Seen]:
    """As Anthropic's client accumulates: blocks one after another."""
    content: list[Json] = []
    body: Json = {}
    is_open = False
    for event in events:
        kind = event["type"]
        assert kind != "error", event
        if kind == "content_block_start":
            assert not is_open
            assert event["index"] == len(content)
            is_open = True
            content.append(dict(event["content_block"]) | {"json": ""})
        elif kind == "content_block_delta":
            assert is_open
            assert event["index"] == len(content) - 1
            block, delta = content[-1], event["delta"]
            for name in ("text", "thinking"):
                if name in delta:
                    block[name] += delta[name]
            block["json"] += delta.get("partial_json", "")
        elif kind == "content_block_stop":
            is_open = False
        elif kind == "message_delta":
            body |= event["delta"] | {"usage": event["usage"]}
    assert events[0]["type"] == "message_start"
    assert events[-1]["type"] == "message_stop"
    for block in content:
        if block["type"] == "tool_use":
            block["input"] = json.loads(block["json"] or "{}")
    return _whole_message(body | {"content": content})


_WHOLE: dict[str, Callable[[Json], list[Seen]]] = {
    "chat/completions": _whole_chat,
    "responses": _whole_response,
    "messages": _whole_message,
}
_STREAM: dict[str, Callable[[list[Json]], list[Seen]]] = {
    "chat/completions": _stream_chat,
    "responses": _stream_response,
    "messages": _stream_message,
}
