"""Language-model servers that misbehave on demand."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

POLL_S = 0.01


def completion(**extra: Any) -> dict[str, Any]:
    """A whole answer as vLLM gives it."""
    logprobs = {"content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}] * 2}
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "aa"},
        "finish_reason": "stop",
        "token_ids": [7, 8],
        "logprobs": logprobs,
    }
    return {"id": "chatcmpl-1", "model": "m@4", "choices": [choice], "prompt_token_ids": [1, 2, 3]} | extra


def chunk(token: int, *, finish_reason: str | None = None, first: bool = False) -> dict[str, Any]:
    """One piece of a streamed answer as vLLM gives it."""
    choice = {
        "index": 0,
        "delta": {"content": f"<{token}>"},
        "finish_reason": finish_reason,
        "token_ids": [token],
        "logprobs": {"content": [{"token": "a", "logprob": -float(token), "bytes": [97], "top_logprobs": []}]},
    }
    body = {"id": "chatcmpl-2", "object": "chat.completion.chunk", "model": "m@4", "created": 1, "choices": [choice]}
    return body | ({"prompt_token_ids": [1, 2, 3]} if first else {})


def streamed(*chunks: Any) -> list[Any]:
    """Chunks with the usage that was asked for, and the end mark."""
    usage = {"prompt_tokens": 3, "completion_tokens": len(chunks), "total_tokens": 3 + len(chunks)}
    last = {"id": "chatcmpl-2", "object": "chat.completion.chunk", "model": "m@4", "created": 1, "choices": []}
    return [*chunks, last | {"usage": usage}, event(b"[DONE]")]


def tool_call_chunks() -> list[dict[str, Any]]:
    """Two calls of tools at once, their arguments in pieces, as vLLM streams them."""

    def piece(index: int, call_id: str | None, **function: str) -> dict[str, Any]:
        made = {"index": index, "function": function} | ({"id": call_id, "type": "function"} if call_id else {})
        return {"tool_calls": [made]}

    deltas: list[dict[str, Any]] = [
        piece(0, "call_a", name="add", arguments=""),
        piece(0, None, arguments='{"a":'),
        piece(0, None, arguments=" 1}"),
        piece(1, "call_b", name="look", arguments='{"at": "x"}'),
        {},
    ]
    chunks: list[dict[str, Any]] = []
    for number, delta in enumerate(deltas):
        body = chunk(number, first=number == 0, finish_reason="tool_calls" if number == len(deltas) - 1 else None)
        body["choices"][0]["delta"] = delta
        chunks.append(body)
    return chunks


def event(body: Any) -> bytes:
    """``body`` as a server-sent event."""
    return b"data: " + (body if isinstance(body, bytes) else json.dumps(body).encode()) + b"\n\n"


class ScriptedUpstream:
    """Answers as its script says, and remembers what it was asked.

    Attributes:
        answer: given the request's JSON, a whole answer, or the pieces of a stream, endless or not. A piece ``None``
            hangs until :attr:`go_on` is set, an exception breaks the connection off.
        asked: the JSON of each request; ``gone`` counts clients that left before their answer was out.
    """

    def __init__(self) -> None:
        self.answer: Callable[[Any], Any] = lambda _request: completion()
        self.asked: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.gone = 0
        self.go_on = threading.Event()
        routes = [
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
            Route("/v1/completions", self._chat, methods=["POST"]),
            Route("/v1/models", self._models, methods=["GET"]),
            Route("/v1/messages", self._chat, methods=["POST"]),  # Anthropic's
        ]
        self.app = Starlette(routes=routes)

    async def _models(self, _request: Request) -> Response:
        return Response(json.dumps({"object": "list", "data": [{"id": "m"}]}), media_type="application/json")

    async def _chat(self, request: Request) -> Response:
        asked = json.loads(await request.body())
        self.asked.append(asked)
        self.headers.append(dict(request.headers))
        answer = self.answer(asked)
        if answer is None:
            await self._hang(request)
            answer = completion()
        if isinstance(answer, Response):
            return answer
        if isinstance(answer, Iterable) and not isinstance(answer, dict):
            return StreamingResponse(self._pieces(answer), media_type="text/event-stream")
        return Response(json.dumps(answer), media_type="application/json")

    async def _hang(self, request: Request) -> None:
        while not self.go_on.is_set():
            if await request.is_disconnected():
                self.gone += 1
                return
            await asyncio.sleep(POLL_S)

    async def _told_to_go_on(self) -> None:
        while not self.go_on.is_set():  # noqa: ASYNC110  # it is set by the test's thread
            await asyncio.sleep(POLL_S)

    async def _pieces(self, pieces: Iterable[Any]) -> AsyncGenerator[bytes]:
        try:
            for piece in pieces:
                await asyncio.sleep(0)  # an endless stream lets others have the loop
                if piece is None:
                    await self._told_to_go_on()
                elif isinstance(piece, Exception):
                    raise piece
                else:
                    yield piece if isinstance(piece, bytes) else event(piece)
        except asyncio.CancelledError:
            self.gone += 1
            raise
