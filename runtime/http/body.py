"""A request's body as it comes: its pieces, and undoing their compression within a limit."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import AsyncIterator

from starlette.types import Receive

from lightstream.runtime.http.server import BodyTooLargeError, ClientGoneError
from lightstream.schemas.errors import DecodeError

DISCARDED_BYTES_MAX = 256 * 1024 * 1024
"""Of a body that is too large, read and thrown away so that its client hears the answer instead of a broken pipe."""


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
        """Read to the end, up to a limit; a client that disconnected is not an error here."""
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


ENCODINGS = ("", "identity", "gzip", "deflate")
"""Values of ``Content-Encoding``: those of OTLP, and ``deflate``, which the Python exporter offers too."""

MEMBERS_MAX = 1000
"""Of a gzip body. Those who concatenate files have a few; a stream of empty ones would never end."""

PACKED_BYTES_MORE = 64 * 1024
"""By which a body that cannot be compressed may grow."""

WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


class Unpacker:
    """Takes the pieces of one body as they come.

    At no time does it hold more than ``limit_bytes`` and one piece, whatever a piece would unpack to.

    Args:
        encoding: one of :data:`ENCODINGS`.
        limit_bytes: most bytes of the unpacked body; packed it may have :data:`PACKED_BYTES_MORE` more.
    """

    def __init__(self, encoding: str, limit_bytes: int) -> None:
        self._window_bits = WINDOW_BITS.get(encoding)
        self._limit_bytes = limit_bytes
        self._pieces: list[bytes] = []
        self._stream = None if self._window_bits is None else zlib.decompressobj(self._window_bits)
        self._is_begun = False
        self._packed_bytes = 0
        self._members = 0
        self.size_bytes = 0

    def feed(self, piece: bytes) -> None:
        """Take the next piece.

        Raises:
            BodyTooLargeError: the body is over the limit.
            DecodeError: it is not compressed as it says, or in too many parts.
        """
        self._packed_bytes += len(piece)
        if self._packed_bytes > self._limit_bytes + PACKED_BYTES_MORE:
            raise BodyTooLargeError(f"the request has over {self._limit_bytes:,} bytes, the most that are accepted.")
        if self._stream is None:
            self._keep(piece)
            return
        try:
            while piece:
                self._is_begun = True
                self._keep(self._stream.decompress(piece, self._limit_bytes - self.size_bytes + 1))
                piece = self._stream.unconsumed_tail
                if self._stream.eof:  # a gzip body may have several members
                    self._members += 1
                    if self._members > MEMBERS_MAX:
                        raise DecodeError(f"the compressed body has over {MEMBERS_MAX:,} members")
                    piece = self._stream.unused_data
                    self._stream = zlib.decompressobj(self._window_bits or 0)
                    self._is_begun = False
        except zlib.error as error:
            raise DecodeError(f"the compressed body is corrupt: {error}") from error

    def finish(self) -> bytes:
        """The whole body.

        Raises:
            DecodeError: its end is missing.
        """
        if self._is_begun:
            raise DecodeError("the compressed body is incomplete")
        return b"".join(self._pieces)

    def _keep(self, piece: bytes) -> None:
        self.size_bytes += len(piece)
        if self.size_bytes > self._limit_bytes:
            raise BodyTooLargeError(f"the request has over {self._limit_bytes:,} bytes, the most that are accepted.")
        self._pieces.append(piece)
