"""uvloop for aiokafka: a write to a closed connection is an OSError, as aiokafka expects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import uvloop

__all__ = ["Policy"]


class Policy(asyncio.DefaultEventLoopPolicy):
    """Makes uvloop's loops, whose connections tell aiokafka when they are closed."""

    def new_event_loop(self) -> uvloop.Loop:
        """A loop for the calling thread."""
        return _Loop()


class _Loop(uvloop.Loop):
    async def create_connection(self, protocol_factory: Callable[[], Any], *arguments: Any, **keywords: Any) -> Any:
        transport, protocol = await super().create_connection(protocol_factory, *arguments, **keywords)
        return _Connection(transport), protocol


class _Connection:
    """A transport that refuses to write once it is closed.

    uvloop raises a RuntimeError then, which aiokafka (issue 1038 there) does not take for a lost connection: its task
    that looks for the cluster's brokers ends with it, and the consumer neither commits nor stops any more.
    """

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def write(self, data: bytes) -> None:
        """As ``asyncio.WriteTransport.write``.

        Raises:
            ConnectionResetError: the connection is closed or about to be.
        """
        if self._transport.is_closing():
            raise ConnectionResetError("the broker closed the connection")
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
