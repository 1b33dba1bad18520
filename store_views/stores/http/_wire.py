"""Names that both ends of the wire must agree on: paths, headers, limits, and the form of values and ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote, unquote

from pydantic import BaseModel

from lightstream.schemas.errors import StoreError

from ..json_text import encoded, is_too_deep, to_json

PREFIX: Final = "/v1/agl"

TRACES_PATH: Final = "/v1/traces"
"""OTLP/HTTP clients send traces there; OpenTelemetry's name for it, and outside of the prefix."""

IDEMPOTENCY_KEY: Final = "idempotency-key"
"""Request header of each write: a repeated key is answered with the first answer."""

ASKS_AGAIN: Final = "lightstream-asks-again"
"""Request header of a client that knows :data:`UNFINISHED`: its waits may be cut short, others' never are."""

UNFINISHED: Final = "lightstream-unfinished"
"""Answer header of a wait that ended before its time was over: ask again."""

REQUEUE_PATH: Final = "/queues/rollouts/give-back"
"""Path of the request by which a client says that it did not wait for rollouts that it had asked for."""

POSITIONS: Final = "lightstream-positions"
"""Header of requests and answers: how far in the log the client has seen, and what the answer reflects."""

WAIT_S_MAX: Final = 25.0
"""Longest that one request waits for something to happen: below the 30 s after which clients and proxies give up."""

RESERVED: Final = frozenset({"latest", "search", "next", "batch", "cancel", "heartbeat", ".", ".."})
"""Path segments that mean something by themselves; an id of that name is written escaped."""


def path_segment(what: str, value: Any) -> str:
    """An id as one segment of a path, whatever it contains. ``what`` names it in the error.

    Raises:
        StoreError: it is not a string that can be sent.
    """
    if not isinstance(value, str):
        raise StoreError(f"{what} is {value!r}, not a string")
    if value in RESERVED:
        return "".join(f"%{byte:02X}" for byte in value.encode())
    try:
        return quote(value, safe="")
    except UnicodeEncodeError as error:
        raise StoreError(f"{what} is {value!r}, which is not valid Unicode") from error


def segment_text(segment: str) -> str:
    """The inverse of :func:`path_segment`.

    Raises:
        UnicodeDecodeError: it is not UTF-8.
    """
    return unquote(segment, errors="strict")


def encode_request(body: dict[str, Any]) -> bytes:
    """A request's body.

    Raises:
        StoreError: a field has a value that JSON cannot say, or that is nested too deeply; names the field.
    """
    try:
        text = encoded("the request", body)
    except StoreError:
        for name, value in _fields(body):
            to_json(name, value)
        raise
    if is_too_deep(text):  # perhaps only with what is around the fields
        for name, value in _fields(body):
            to_json(name, value)
    return text.encode()


def _fields(body: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The fields of a body; of a list of models theirs."""
    for name, value in body.items():
        if isinstance(value, list) and value and isinstance(value[0], BaseModel):
            for model in value:
                yield from dict(model).items()
        else:
            yield name, value
