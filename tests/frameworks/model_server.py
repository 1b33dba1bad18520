"""Model servers of the tests, each of which remembers every answer that it gave."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

ROLLOUT = re.compile(r"rollout (r\d+)")
"""What a task says of itself, so that a model server knows whose request it has."""

MEETING_TIMEOUT_S = 120.0
LOGPROB_STEP = 0.125
"""A power of two: what the server says, what JSON carries and float32 keeps are the same number."""


def task_of(rollout_id: str) -> str:
    """A task that names its rollout."""
    return f"What is the weather in Bergen? (rollout {rollout_id})"


@dataclass(frozen=True, slots=True)
class Say:
    """An answer in words."""

    text: str


@dataclass(frozen=True, slots=True)
class CallTools:
    """An answer that calls tools: (name, arguments) each."""

    calls: tuple[tuple[str, dict[str, Any]], ...]

    @classmethod
    def of(cls, name: str, **arguments: Any) -> CallTools:
        """One call."""
        return cls(((name, arguments),))


Script: TypeAlias = Callable[[dict[str, Any]], Say | CallTools]
"""What to answer to a chat request."""


def turns(request: dict[str, Any]) -> int:
    """How often the model has spoken in the conversation that it is shown."""
    return sum(message["role"] == "assistant" for message in request["messages"])


def in_turn(*replies: Say | CallTools) -> Script:
    """The first reply to a conversation without answers of the model's, the second to one with one, and so on."""
    return lambda request: replies[min(turns(request), len(replies) - 1)]


@dataclass(slots=True)
class Given:
    """One answer as the server gave it; for each choice its tokens and their log-probabilities."""

    request: dict[str, Any]
    response_id: str = ""
    prompt_ids: list[int] = field(default_factory=list[int])
    response_ids: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    logprobs: dict[int, list[float]] = field(default_factory=dict[int, list[float]])

    @property
    def rollout_id(self) -> str:
        """Whose it was, by what it says."""
        found = ROLLOUT.search(json.dumps(self.request))
        assert found is not None, f"a request of no task: {self.request}"
        return found[1]


class ModelServer(Protocol):
    """What answers behind the proxy."""

    @property
    def given(self) -> list[Given]:
        """Every answer so far."""
        ...

    @property
    def app(self) -> Starlette:
        """The server."""
        ...


class Meeting:
    """Lets nobody go on before everybody is there: rollouts that are meant to run at once do."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._there: set[str] = set()
        self._all_there = asyncio.Event()

    async def of(self, name: str) -> None:
        """``name`` is there.

        Raises:
            TimeoutError: the others did not come.
        """
        self._there.add(name)
        if len(self._there) >= self._expected:
            self._all_there.set()
        await asyncio.wait_for(self._all_there.wait(), MEETING_TIMEOUT_S)


class ScriptedModel:
    """Answers what its script says, in vLLM's format: with token ids, log-probabilities, and in pieces where asked.

    Attributes:
        script: what to answer.
        given: every answer, with token ids that no other answer has.
        of_rollouts: whether requests come from tasks that name their rollout, by the proxy, which asks for ids.
    """

    def __init__(
        self, script: Script | None = None, meeting: Meeting | None = None, *, of_rollouts: bool = True
    ) -> None:
        self.script = script or (lambda _: Say("It rains in Bergen."))
        self.given: list[Given] = []
        self.of_rollouts = of_rollouts
        self._meeting = meeting or Meeting(1)
        self._ids = itertools.count(1000)
        self.app = Starlette(
            routes=[
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/models", self._models, methods=["GET"]),
            ]
        )

    async def _models(self, _request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": "policy", "object": "model", "owned_by": "tests"}]})

    async def _chat(self, http_request: Request) -> Response:
        request: dict[str, Any] = await http_request.json()
        given = Given(request, f"chatcmpl-{uuid.uuid4().hex}")
        if self.of_rollouts:
            assert request["return_token_ids"] is True
            await self._meeting.of(given.rollout_id)
        reply = self.script(request)
        given.prompt_ids = [next(self._ids) for _ in range(5)]
        self.given.append(given)
        choices = [self._choice(given, index, reply) for index in range(request.get("n") or 1)]
        head = {"id": given.response_id, "created": 1, "model": "policy@7"}
        size = sum(len(ids) for ids in given.response_ids.values())
        usage = {"prompt_tokens": 5, "completion_tokens": size, "total_tokens": 5 + size}
        if request.get("stream"):
            wants_usage = (request.get("stream_options") or {}).get("include_usage") is True
            pieces = _in_pieces(head, given, choices, usage if wants_usage else None)
            return StreamingResponse(_events(pieces), media_type="text/event-stream")
        body = {"object": "chat.completion", "choices": choices, "usage": usage, "prompt_token_ids": given.prompt_ids}
        return JSONResponse(head | body)

    def _choice(self, given: Given, index: int, reply: Say | CallTools) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": None}
        if isinstance(reply, Say):
            message["content"] = reply.text
            size = len(_words(reply.text))
        else:
            message["tool_calls"] = [_tool_call(name, arguments) for name, arguments in reply.calls]
            size = 2 * len(reply.calls)
        ids = given.response_ids[index] = [next(self._ids) for _ in range(size)]
        given.logprobs[index] = [-LOGPROB_STEP * (number % 50 + 1) for number in ids]
        return {
            "index": index,
            "message": message,
            "finish_reason": "stop" if isinstance(reply, Say) else "tool_calls",
            "token_ids": ids,
            "logprobs": _logprobs(given.logprobs[index]),
        }


def _words(text: str) -> list[str]:
    return re.findall(r"\s*\S+|\s+$", text) or [text]


def _tool_call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function}


def _logprobs(values: list[float]) -> dict[str, Any]:
    return {"content": [{"token": "a", "logprob": value, "bytes": [97], "top_logprobs": []} for value in values]}


def _deltas(message: dict[str, Any]) -> list[dict[str, Any]]:
    """A message in as many pieces as it has tokens."""
    if message["content"] is not None:
        return [{"content": word} for word in _words(message["content"])]
    deltas: list[dict[str, Any]] = []
    for index, call in enumerate(message["tool_calls"]):
        begun = call | {"index": index, "function": call["function"] | {"arguments": ""}}
        rest = {"index": index, "function": {"arguments": call["function"]["arguments"]}}
        deltas += [{"tool_calls": [begun]}, {"tool_calls": [rest]}]
    return deltas


def _in_pieces(
    head: dict[str, Any], given: Given, choices: list[dict[str, Any]], usage: dict[str, int] | None
) -> Iterable[dict[str, Any]]:
    head = head | {"object": "chat.completion.chunk"}
    for choice in choices:
        index = choice["index"]
        deltas = _deltas(choice["message"])
        for number, delta in enumerate(deltas):
            piece: dict[str, Any] = {
                "index": index,
                "delta": delta | ({"role": "assistant"} if number == 0 else {}),
                "finish_reason": choice["finish_reason"] if number == len(deltas) - 1 else None,
                "token_ids": given.response_ids[index][number : number + 1],
                "logprobs": _logprobs(given.logprobs[index][number : number + 1]),
            }
            first = {"prompt_token_ids": given.prompt_ids} if number == 0 and index == 0 else {}
            yield head | first | {"choices": [piece]}
    if usage is not None:
        yield head | {"choices": [], "usage": usage}


async def _events(pieces: Iterable[dict[str, Any]]) -> AsyncGenerator[bytes]:
    for piece in pieces:
        yield b"data: " + json.dumps(piece).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"
