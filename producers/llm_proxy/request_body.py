"""The body of an agent's request: compressed or not, and JSON."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from lightstream.runtime.http.body import ENCODINGS, Unpacker
from lightstream.runtime.http.server import read_body
from lightstream.schemas.errors import DecodeError

from .json_text import half_pair_in, read_json_as_sent


class UnreadableBodyError(ValueError):
    """A body that cannot be read; ``status`` is the answer's (400, or 415 for a compression that is not known)."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


async def unpacked_body(request: Request, limit_bytes: int) -> bytes:
    """The whole body, without its compression.

    Raises:
        BodyTooLargeError: it has, compressed or not, more than ``limit_bytes``.
        ClientGoneError: the client disconnected before it had sent all.
        UnreadableBodyError: it is compressed in another way than it says, or in one that is not known.
    """
    encoding = request.headers.get("content-encoding", "").strip().lower()
    body = await read_body(request, limit_bytes)
    if encoding not in ENCODINGS:
        known = ", ".join(filter(None, ENCODINGS))
        raise UnreadableBodyError(f"the Content-Encoding is {encoding!r}; it must be one of {known}", status=415)
    unpacker = Unpacker(encoding, limit_bytes)
    try:
        unpacker.feed(body)
        return unpacker.finish()
    except DecodeError as error:
        raise UnreadableBodyError(
            f"the body is not {encoding}, as its Content-Encoding says: {error.message}"
        ) from error


def json_object(body: bytes) -> dict[str, Any]:
    """The object in a body.

    Raises:
        UnreadableBodyError: it is not JSON or no object, or a text in it ends within a character.
    """
    try:
        value, has_halves = read_json_as_sent(body)
    except ValueError as error:
        raise UnreadableBodyError(f"the request is not JSON: {error}") from error
    half = half_pair_in(value) if has_halves else None
    if half is not None:
        raise UnreadableBodyError(
            f"the text at {half} has half of a surrogate pair (one of \\ud800 to \\udfff alone), which is no "
            "character: it was cut within one. Cut the text between characters, or encode it with errors='replace'."
        )
    if not isinstance(value, dict):
        raise UnreadableBodyError("the request is not a JSON object")
    return value
