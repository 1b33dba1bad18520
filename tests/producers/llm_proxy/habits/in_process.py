"""The proxy's application in this process: its requests come from a function, its records go into a list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from typing import Any

import httpx

from lightstream.producers.llm_proxy.app import create_app
from lightstream.producers.llm_proxy.upstream import UpstreamAnswer
from lightstream.runtime.kafka import Headers, Instead, Position
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.records import Record, SpanRecord
from lightstream.schemas.topics import Topic

CODEC = Codec()


class InProcess:
    """An application, asked over ASGI.

    Attributes:
        answer: gives the body or the pieces of the model server's answer to a request.
        records: what was recorded, as it is read again.
    """

    def __init__(self) -> None:
        self.answer: Callable[[dict[str, Any]], bytes | list[bytes] | UpstreamAnswer] = lambda _request: b""
        self.records: list[SpanRecord] = []
        self._loop = asyncio.new_event_loop()
        app = create_app(Settings.load(), _Server(self), self)
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://proxy")

    def ask(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """One call, in attempt ``r-a1`` of rollout ``r``."""
        url = f"/rollout/r/attempt/r-a1/v1/{path}"
        return self._loop.run_until_complete(self._client.post(url, json=body))

    def close(self) -> None:
        self._loop.run_until_complete(self._client.aclose())
        self._loop.close()

    def publish(
        self,
        topic: Topic,
        key: str,
        record: Record | None,
        *,
        headers: Headers | None = None,
        partition: int = -1,
        instead: Instead | None = None,
    ) -> Future[Position]:
        assert record is not None
        decoded = CODEC.decode(CODEC.encode(record))
        assert isinstance(decoded, SpanRecord)
        self.records.append(decoded)
        done: Future[Position] = Future()
        done.set_result(Position(topic.name, 0, len(self.records)))
        return done

    def flush(self, timeout_s: float) -> int:
        return 0


class _Server:
    """What the application takes for the model server."""

    def __init__(self, process: InProcess) -> None:
        self._process = process

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def models(self, name: str = "") -> UpstreamAnswer:
        raise NotImplementedError(name)

    async def ask(self, endpoint: str, request: dict[str, Any], *, streams: bool) -> UpstreamAnswer:
        answer = self._process.answer(request)
        if isinstance(answer, UpstreamAnswer):
            return answer
        if isinstance(answer, bytes):
            return UpstreamAnswer(200, body=answer)

        async def pieces() -> AsyncIterator[bytes]:
            for piece in answer:
                yield piece

        return UpstreamAnswer(200, content_type="text/event-stream", pieces=pieces())
