"""Random calls of an agent, over every interface of the proxy, and what the agent reads out of the answers."""

from __future__ import annotations

import asyncio
import json
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import httpx

ROUTES = ("chat/completions", "completions", "responses", "messages")
CALLS_PER_ROLLOUT = 5
CALLS_AT_ONCE = 8
CHOICES_MAX = 4
TIMEOUT_S = 120.0

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
PARAMETERS = {"type": "object", "properties": {"at": {"type": "string"}, "n": {"type": "integer"}}}
TOOL_NAMES = ("add", "look_up")

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """One call; ``extras`` are what the agent itself wants to see, ``must_call`` leaves it no choice but a tool."""

    number: int
    route: str
    streams: bool
    tools: bool
    structured: bool
    choices: int
    prompts: int
    extras: tuple[str, ...]
    model: str = "m"
    must_call: bool = False
    tokens_max: int = 20

    @property
    def server_id(self) -> str:
        """Of the answer, at the tests' model server."""
        return f"{'text_completion' if self.route == 'completions' else 'chat.completion'}-{self.number}"

    @property
    def rollout_id(self) -> str:
        return f"r{self.number // CALLS_PER_ROLLOUT}"

    @property
    def attempt_id(self) -> str:
        return f"{self.rollout_id}-a1"

    def body(self) -> Json:
        """As the interface of its route has it."""
        said = f"call {self.number}: Ünïcode?"
        body: Json = {"model": self.model, "stream": self.streams}
        if self.route == "messages":
            return body | self._messages(said)
        if self.route == "responses":
            return body | self._responses(said)
        body |= {"n": self.choices, "max_tokens": self.tokens_max}
        if self.route == "completions":
            return body | {"prompt": [said] * self.prompts if self.prompts > 1 else said} | self._wanted(2)
        body |= {"messages": [{"role": "user", "content": said}]} | self._wanted(True)
        if self.tools:
            body["tools"] = [
                {"type": "function", "function": {"name": name, "parameters": PARAMETERS}} for name in TOOL_NAMES
            ]
        if self.must_call:
            body["tool_choice"] = "required"
        if self.structured:
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
        return body

    def _wanted(self, logprobs: Any) -> Json:
        values = {"logprobs": logprobs, "return_token_ids": True, "stream_options": {"include_usage": True}}
        return {name: values[name] for name in self.extras}

    def _messages(self, said: str) -> Json:
        body: Json = {"max_tokens": self.tokens_max, "messages": [{"role": "user", "content": said}]}
        if self.tools:
            body["tools"] = [{"name": name, "input_schema": PARAMETERS} for name in TOOL_NAMES]
        if self.must_call:
            body["tool_choice"] = {"type": "any"}
        if self.structured:
            body["output_config"] = {"format": {"type": "json_schema", "schema": SCHEMA}}
        return body

    def _responses(self, said: str) -> Json:
        body: Json = {"input": said, "max_output_tokens": self.tokens_max}
        if self.tools:
            body["tools"] = [{"type": "function", "name": name, "parameters": PARAMETERS} for name in TOOL_NAMES]
        if self.must_call:
            body["tool_choice"] = "required"
        if self.structured:
            body["text"] = {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}
        return body


@dataclass(frozen=True, slots=True)
class Answered:
    """What the agent read: the answer's id, and of each choice the text and the tool calls (name, arguments)."""

    response_id: str
    texts: list[str]
    tool_calls: list[list[tuple[str, Any]]]


def draw(number: int, seed: int) -> Asked:
    """The call of that number."""
    rng = random.Random(f"{seed} call {number}")
    route = rng.choice(ROUTES)
    plain = route == "completions"
    several = route in ("chat/completions", "completions")
    wanted = ("logprobs", "return_token_ids", "stream_options")
    return Asked(
        number,
        route,
        streams=rng.random() < 0.6,
        tools=not plain and rng.random() < 0.5,
        structured=not plain and rng.random() < 0.3,
        choices=rng.randint(1, CHOICES_MAX) if several else 1,
        prompts=rng.randint(1, 2) if plain else 1,
        extras=tuple(name for name in wanted if rng.random() < 0.3) if several else (),
    )


async def ask_all(proxy_url: str, calls: list[Asked]) -> list[Answered]:
    """Make the calls, some at once, and read the whole answers."""
    at_once = asyncio.Semaphore(CALLS_AT_ONCE)
    async with httpx.AsyncClient() as client:

        async def one(asked: Asked) -> Answered:
            async with at_once:
                return await _ask(client, proxy_url, asked)

        return await asyncio.gather(*map(one, calls))


async def _ask(client: httpx.AsyncClient, proxy_url: str, asked: Asked) -> Answered:
    """Make the call and read the whole answer."""
    url = f"{proxy_url}/rollout/{asked.rollout_id}/attempt/{asked.attempt_id}/v1/{asked.route}"
    body = asked.body()
    if not asked.streams:
        body.pop("stream_options", None)  # only for streams
    answer = await client.post(url, json=body, timeout=TIMEOUT_S)
    assert answer.status_code == 200, answer.text
    if not asked.streams:
        return _READ_WHOLE[asked.route](answer.json())
    lines = answer.content.decode().replace("\r\n", "\n").split("\n")
    events = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return _READ_STREAM[asked.route]([json.loads(event) for event in events if event != "[DONE]"])


def _whole_chat(body: Json) -> Answered:
    messages = [choice["message"] for choice in sorted(body["choices"], key=_index)]
    calls = [[_call(call["function"]) for call in message.get("tool_calls") or []] for message in messages]
    return Answered(body["id"], [message["content"] or "" for message in messages], calls)


def _streamed_chat(chunks: list[Json]) -> Answered:
    texts: dict[int, str] = defaultdict(str)
    calls: dict[int, dict[int, list[str]]] = defaultdict(dict)
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        texts[choice["index"]] += choice["delta"].get("content") or ""
        for piece in choice["delta"].get("tool_calls") or []:
            call = calls[choice["index"]].setdefault(piece["index"], ["", ""])
            call[0] += piece["function"].get("name") or ""
            call[1] += piece["function"].get("arguments") or ""
    made = [[(name, arguments) for name, arguments in calls[index].values()] for index in sorted(texts)]
    return Answered(chunks[0]["id"], [texts[index] for index in sorted(texts)], made)


def _whole_text(body: Json) -> Answered:
    texts = [choice["text"] for choice in sorted(body["choices"], key=_index)]
    return Answered(body["id"], texts, [[] for _ in texts])


def _streamed_text(chunks: list[Json]) -> Answered:
    texts: dict[int, str] = defaultdict(str)
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        texts[choice["index"]] += choice["text"]
    return Answered(chunks[0]["id"], [texts[index] for index in sorted(texts)], [[] for _ in texts])


def _whole_response(body: Json) -> Answered:
    text = "".join(
        part["text"] for item in body["output"] if item["type"] == "message" for part in item.get("content") or []
    )
    calls = [_call(item) for item in body["output"] if item["type"] == "function_call"]
    return Answered(body["id"], [text], [calls])


def _streamed_response(events: list[Json]) -> Answered:
    assert events[-1]["type"] in ("response.completed", "response.incomplete"), events[-1]
    whole = _whole_response(events[-1]["response"])
    deltas = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    assert whole.texts == [deltas]
    return whole


def _whole_message(body: Json) -> Answered:
    text = "".join(block["text"] for block in body["content"] if block["type"] == "text")
    calls = [(block["name"], block["input"]) for block in body["content"] if block["type"] == "tool_use"]
    return Answered(body["id"], [text], [calls])


def _streamed_message(events: list[Json]) -> Answered:
    assert events[-1]["type"] == "message_stop", events[-1]
    text, calls = "", dict[int, list[str]]()
    for event in events:
        if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
            calls[event["index"]] = [event["content_block"]["name"], ""]
        if event["type"] == "content_block_delta":
            delta = event["delta"]
            text += delta.get("text", "")
            if "partial_json" in delta:
                calls[event["index"]][1] += delta["partial_json"]
    made = [(name, arguments) for name, arguments in calls.values()]
    return Answered(events[0]["message"]["id"], [text], [made])


def _index(choice: Json) -> int:
    return int(choice["index"])


def _call(function: Json) -> tuple[str, str]:
    return function["name"], function["arguments"]


_READ_WHOLE: dict[str, Callable[[Json], Answered]] = {
    "chat/completions": _whole_chat,
    "completions": _whole_text,
    "responses": _whole_response,
    "messages": _whole_message,
}
_READ_STREAM: dict[str, Callable[[list[Json]], Answered]] = {
    "chat/completions": _streamed_chat,
    "completions": _streamed_text,
    "responses": _streamed_response,
    "messages": _streamed_message,
}
