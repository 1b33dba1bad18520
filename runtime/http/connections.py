"""Connections of an HTTP server, limited: a client that keeps silent, or sends too slowly, holds none for long.

Invariants:

- A connection on which a request is being answered is never closed here, however long that takes.
- One whose request is incomplete is closed after :data:`REQUEST_PATIENCE_S`, and a second more for each
  :data:`BYTES_PER_SECOND_MIN` that came. The time during which we do not read counts for nothing.
- At the most connections, the one that has been silent for the longest makes room for the next.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Iterable
from typing import Any, cast

from uvicorn.protocols.http.auto import AutoHTTPProtocol

logger = logging.getLogger(__name__)

REQUEST_PATIENCE_S = 30.0
BYTES_PER_SECOND_MIN = 1024
IDLE_S = 90.0
"""Between two requests; uvicorn closes such connections before that, unless a request has begun."""

HEAD_BYTES_MAX = 64 * 1024
CONNECTIONS_MAX = 10_000


def connections_max() -> int:
    """Most connections at once: three quarters of the files that this process may open; others are Kafka's."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return min(CONNECTIONS_MAX, soft * 3 // 4)


_Base: Any = AutoHTTPProtocol


class LimitedConnection(_Base):  # type: ignore[misc]  # uvicorn chooses the base at import, so its type is not known
    """A connection of uvicorn's that knows since when it waits for its client. Used in the server's loop alone."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Called by the loop for each new connection."""
        super().connection_made(transport)
        self._answered: Any = None
        self._is_in_head = False
        self._received_bytes = 0
        self._waits_since_s = self.loop.time()
        others = cast("set[LimitedConnection]", self.connections)
        if len(others) > connections_max():
            silent = [each for each in others if each.is_silent and each is not self]
            min(silent, key=lambda each: each._waits_since_s, default=self).hang_up()

    def data_received(self, data: bytes) -> None:
        """Called by the loop with data of the client."""
        before = self.cycle
        if self.is_silent and not self._is_in_head:
            self._is_in_head = True
            self._begin_to_wait()
        self._received_bytes += len(data)
        super().data_received(data)
        if self.cycle is not before:
            self._is_in_head = False
            self._begin_to_wait()
        elif self.is_silent and self._received_bytes > HEAD_BYTES_MAX:
            self._refuse_head()

    @property
    def is_silent(self) -> bool:
        """Whether no request is being answered."""
        return bool(self.cycle is None or self.cycle.response_complete)

    def is_overdue(self, now_s: float) -> bool:
        """Whether the client has kept us waiting for longer than it may."""
        cycle = self.cycle
        if not self.is_silent and (not cycle.more_body or self.flow.read_paused):
            self._begin_to_wait()
            return False
        is_idle = cycle is not None and self.is_silent and not self._is_in_head
        patience_s = IDLE_S if is_idle else REQUEST_PATIENCE_S + self._received_bytes / BYTES_PER_SECOND_MIN
        return bool(now_s - self._waits_since_s > patience_s)

    def hang_up(self) -> None:
        """Close the connection without an answer."""
        self.transport.abort()

    def _begin_to_wait(self) -> None:
        self._waits_since_s = self.loop.time()
        self._received_bytes = 0

    def _refuse_head(self) -> None:
        message = f"the head of a request may have {HEAD_BYTES_MAX:,} bytes"
        self.transport.write(
            b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain\r\nconnection: close\r\n"
            + f"content-length: {len(message)}\r\n\r\n{message}".encode()
        )
        self.transport.close()


def close_overdue(connections: Iterable[Any], now_s: float) -> int:
    """Close the connections whose clients keep us waiting; returns how many."""
    overdue = [each for each in connections if isinstance(each, LimitedConnection) and each.is_overdue(now_s)]
    for each in overdue:
        each.hang_up()
    if overdue:
        logger.warning("closed %d connections whose clients sent no whole request in time", len(overdue))
    return len(overdue)
