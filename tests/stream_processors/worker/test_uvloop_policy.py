"""A broker that goes away is an OSError for aiokafka, as on asyncio's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lightstream.stream_processors.worker.uvloop_policy import Policy


def run(main: Callable[[], Awaitable[None]]) -> None:
    loop = Policy().new_event_loop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one line, then close."""
    writer.write(b"hello " + await reader.readline())
    await writer.drain()
    writer.close()


async def connected() -> tuple[asyncio.Server, asyncio.StreamReader, asyncio.StreamWriter]:
    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    return server, reader, writer


def test_an_open_connection_is_written_to_and_read_from() -> None:
    async def main() -> None:
        server, reader, writer = await connected()
        async with server:
            writer.write(b"you\n")
            assert await reader.read() == b"hello you\n"
            writer.close()
            await writer.wait_closed()

    run(main)


def test_a_closed_connection_cannot_be_written_to() -> None:
    async def main() -> None:
        server, reader, writer = await connected()
        async with server:
            writer.write(b"you\n")
            await reader.read()  # up to the end of the stream: the other side closed
            writer.close()
            await writer.wait_closed()
            with pytest.raises(OSError, match="closed the connection"):
                writer.write(b"again\n")

    run(main)
