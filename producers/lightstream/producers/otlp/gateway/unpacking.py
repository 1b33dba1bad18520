"""Undo a request's compression, piece by piece, within a limit that counts the unpacked bytes. Pure."""

from __future__ import annotations

import zlib

from lightstream.schemas.errors import DecodeError
from lightstream.schemas.http_server import BodyTooLargeError

__all__ = ["ENCODINGS", "Unpacker"]

ENCODINGS = ("", "identity", "gzip", "deflate")
"""Of ``Content-Encoding``: what OTLP asks for, and ``deflate``, which the Python exporter offers too."""

WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


class Unpacker:
    """Takes the pieces of one body as they come.

    At no time does it hold more than ``limit_bytes`` and one piece, whatever a piece would unpack to.

    Args:
        encoding: one of :data:`ENCODINGS`.
        limit_bytes: most bytes of the unpacked body.
    """

    def __init__(self, encoding: str, limit_bytes: int) -> None:
        self._window_bits = WINDOW_BITS.get(encoding)
        self._limit_bytes = limit_bytes
        self._pieces: list[bytes] = []
        self._stream = None if self._window_bits is None else zlib.decompressobj(self._window_bits)
        self._is_begun = False
        self.size_bytes = 0

    def feed(self, piece: bytes) -> None:
        """Take the next piece.

        Raises:
            BodyTooLargeError: the body is over the limit.
            DecodeError: it is not compressed as it says.
        """
        if self._stream is None:
            self._keep(piece)
            return
        try:
            while piece:
                self._is_begun = True
                self._keep(self._stream.decompress(piece, self._limit_bytes - self.size_bytes + 1))
                piece = self._stream.unconsumed_tail
                if self._stream.eof:  # a gzip body may have several members
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
