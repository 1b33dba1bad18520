"""Spans a second, from the first request to the last span that can be read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

import aiohttp

from .servers import Server
from .spans import traces_request

__all__ = ["spans_per_s"]

SPANS_PER_REQUEST = 500
CONNECTIONS = 4
BUSY = (429, 503)
BUSY_PAUSE_S = 0.2
COUNT_INTERVAL_S = 0.1
PATIENCE_S = 900.0


def spans_per_s(server: Server, spans: int, seed: int) -> float:
    """Send so many spans, new ones for each seed, and wait until the server has stored them all."""
    requests = [traces_request(SPANS_PER_REQUEST, seed * 100_000 + n) for n in range(spans // SPANS_PER_REQUEST)]
    wanted = server.count() + len(requests) * SPANS_PER_REQUEST
    began_s = time.perf_counter()
    asyncio.run(_send(server, requests))
    while server.count() < wanted:
        if time.perf_counter() - began_s > PATIENCE_S:
            raise TimeoutError(f"{server.name} has {server.count():,} of {wanted:,} spans")
        time.sleep(COUNT_INTERVAL_S)
    return len(requests) * SPANS_PER_REQUEST / (time.perf_counter() - began_s)


async def _send(server: Server, requests: Iterable[bytes]) -> None:
    left = iter(requests)
    headers = {"content-type": "application/x-protobuf", **server.headers}

    async def work(session: aiohttp.ClientSession) -> None:
        for body in left:
            while True:  # a server that is busy is asked again, as exporters do
                async with session.post(server.traces_url, data=body, headers=headers) as answer:
                    if answer.status not in BUSY:
                        answer.raise_for_status()
                        break
                await asyncio.sleep(BUSY_PAUSE_S)

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(work(session) for _ in range(CONNECTIONS)))
