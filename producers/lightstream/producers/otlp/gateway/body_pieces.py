"""A request's body as it comes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from starlette.types import Receive

from lightstream.schemas.errors import LightstreamError

__all__ = ["BodyPieces", "ClientGoneError"]

DISCARDED_BYTES_MAX = 256 * 1024 * 1024
"""Of a body that is too large, read and thrown away so that its client hears the answer instead of a broken pipe."""


class ClientGoneError(LightstreamError):
    """The client closed the connection before its request was whole."""


class BodyPieces:
    """The pieces of one body, for ``async for``; knows whether there are more.

    Raises:
        ClientGoneError: while iterating.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._has_more = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self._has_more:
            yield await self._next()

    async def discard_rest(self) -> None:
        """Read to the end, as far as that is reasonable; a client that disconnected is not an error here."""
        left_bytes = DISCARDED_BYTES_MAX
        with contextlib.suppress(ClientGoneError):
            while self._has_more and left_bytes > 0:
                left_bytes -= len(await self._next())

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._has_more = False
            raise ClientGoneError("the client disconnected.")
        self._has_more = message.get("more_body", False)
        piece: bytes = message.get("body", b"")
        return piece
