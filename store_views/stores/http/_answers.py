"""Answers as they go over the wire, and a memory of the answers to writes.

An error is answered with ``{"detail", "error_type", "next_step"}`` and a status:

400  StoreError                    a call that cannot be done; nothing changed
401  SettingsError                 no token, or a wrong one
404  NotFoundError                 the rollout, attempt, resource or worker does not exist; no such route
413                                the body is over the limit
422  ``detail`` lists the fields   the body is not JSON, or a field is missing or of a wrong type; nothing changed
501  NotImplementedError           the store lacks it
503  ServiceUnavailableError       what the store needs does not answer; with ``retry-after``: ask again
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.responses import Response

from lightstream.runtime.http.errors import store_error
from lightstream.runtime.http.server import CLIENT_GONE, ClientGoneError
from lightstream.schemas.errors import LightstreamError, NotFoundError, ServiceUnavailableError, StoreError
from lightstream.schemas.types import AttemptedRollout, PaginatedResult

STATUSES: dict[type[LightstreamError], int] = {
    NotFoundError: HTTPStatus.NOT_FOUND,
    StoreError: HTTPStatus.BAD_REQUEST,
    ServiceUnavailableError: HTTPStatus.SERVICE_UNAVAILABLE,
    ClientGoneError: CLIENT_GONE,
}
"""A subclass comes before its base; any other error of ours is a failure of what the store needs."""

SHOWN_MAX = 200
"""Characters of a wrong value that an answer repeats."""

RETRY_AFTER = {"retry-after": "1"}

ANSWERS_KEPT_MAX = 20_000
"""A client repeats within a minute or so; at 300 writes a second this is more than one."""

ANSWER_BYTES_KEPT_MAX = 64 * 1024 * 1024
KEY_CHARACTERS_MAX = 200


class StoppingError(ServiceUnavailableError):
    """The server stops; a caller that repeats its call finds the next one."""


class Answer(Response):
    """A value as JSON: models, and lists of them, with all the fields that they have; bytes are JSON already.

    Attributes:
        dispatched: rollout and attempt of each rollout that the answer tells its client to run; nobody else knows
            of them.
    """

    media_type = "application/json"

    def __init__(
        self,
        value: Any,
        status: int = HTTPStatus.OK,
        headers: Mapping[str, str] | None = None,
        dispatched: Iterable[AttemptedRollout] = (),
    ) -> None:
        super().__init__(value, status, headers)
        self.dispatched = attempts_of(dispatched)

    def render(self, content: Any) -> bytes:
        if isinstance(content, bytes):
            return content
        if isinstance(content, PaginatedResult):
            content = {name: getattr(content, name) for name in ("items", "limit", "offset", "total")}
        return to_json(content, inf_nan_mode="constants", bytes_mode="base64", fallback=repr)


def attempts_of(rollouts: Iterable[AttemptedRollout]) -> tuple[tuple[str, str], ...]:
    """Return rollout and attempt of each."""
    return tuple((rollout.rollout_id, rollout.attempt.attempt_id) for rollout in rollouts)


def refusal(
    status: int, detail: Any, error_type: str = "", next_step: str = "", headers: Mapping[str, str] | None = None
) -> Answer:
    """Make an answer that says no. Its text may quote what is not valid Unicode."""
    return Answer(json.dumps(store_error(detail, error_type, next_step)).encode(), status, headers)


def error_answer(error: LightstreamError | ValueError | NotImplementedError) -> Answer:
    """Make the answer that tells an error of the store."""
    if isinstance(error, NotImplementedError):
        return refusal(
            HTTPStatus.NOT_IMPLEMENTED, str(error) or "the store does not support this", "NotImplementedError"
        )
    if not isinstance(error, LightstreamError):
        return refusal(HTTPStatus.BAD_REQUEST, str(error), "StoreError")
    kind = next((known for known in STATUSES if isinstance(error, known)), type(error))
    status = STATUSES.get(kind, HTTPStatus.SERVICE_UNAVAILABLE)
    headers = RETRY_AFTER if isinstance(error, StoppingError) else None
    return refusal(status, error.message, kind.__name__, error.next_step, headers)


def rejected_answer(error: RequestValidationError) -> Answer:
    """Make the answer to a request that does not fit its route. It names each field, and what was given if short."""
    shown = [{name: item[name] for name in ("loc", "msg", "type")} | _given(item) for item in error.errors()]
    return refusal(HTTPStatus.UNPROCESSABLE_ENTITY, shown, "StoreError")


def _given(item: Mapping[str, Any]) -> dict[str, Any]:
    value = item.get("input")
    is_short = value is None or isinstance(value, (bool, int)) or (isinstance(value, str) and len(value) <= SHOWN_MAX)
    return {"input": value} if is_short and item["type"] not in ("missing", "json_invalid") else {}


@dataclass(slots=True)
class _Kept:
    request: bytes
    task: asyncio.Task[Answer]
    awaited: int = 0
    size_bytes: int = 0


class AnswerMemory:
    """Keeps the first answers to writes, so that a repeated request gets the same one and is not done twice.

    It belongs to one event loop. The oldest answers make room; a request under way is never forgotten. An answer that
    reports a failure of ours (5xx) is not kept, nor what is raised: the repeated request is done again.
    """

    def __init__(self, answers_max: int = ANSWERS_KEPT_MAX, answer_bytes_max: int = ANSWER_BYTES_KEPT_MAX) -> None:
        self._answers_max = answers_max
        self._answer_bytes_max = answer_bytes_max
        self._under_way: dict[str, _Kept] = {}
        self._done: OrderedDict[str, _Kept] = OrderedDict()
        self._done_bytes = 0

    def __len__(self) -> int:
        return len(self._under_way) + len(self._done)

    async def once(self, key: str, request: bytes, do: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        """Return the answer of ``do``, or the first one under this key. ``do`` runs to its end if nobody waits for it.

        Args:
            request: digest of the request, to tell a repetition from a key used twice.

        Raises:
            StoreError: the key belongs to another request, or is too long.
        """
        if len(key) > KEY_CHARACTERS_MAX:
            raise StoreError(f"the idempotency key has {len(key)} characters; at most {KEY_CHARACTERS_MAX} are allowed")
        kept = self._under_way.get(key) or self._done.get(key)
        if kept is None:
            kept = _Kept(request, asyncio.create_task(do()))
            self._under_way[key] = kept
            kept.task.add_done_callback(lambda task: self._finish(key, task))
        elif kept.request != request:
            raise StoreError(f"the idempotency key {key!r} was used for a different request")
        kept.awaited += 1
        try:
            return await asyncio.shield(kept.task)
        finally:
            kept.awaited -= 1

    async def forget(self, key: str, *, though_awaited: bool = False) -> Answer | None:
        """Forget the result or the open call under this key, and end the latter.

        Returns:
            The answer; ``None`` where there is none, or while others wait for it.
        """
        kept = self._under_way.get(key) or self._done.get(key)
        if kept is None or (kept.awaited and not though_awaited):
            return None
        self._under_way.pop(key, None)
        if self._done.pop(key, None) is not None:
            self._done_bytes -= kept.size_bytes
        kept.task.cancel()
        await asyncio.wait({kept.task})
        return None if kept.task.cancelled() or kept.task.exception() is not None else kept.task.result()

    def _finish(self, key: str, task: asyncio.Task[Answer]) -> None:
        kept = self._under_way.get(key)
        if kept is None or kept.task is not task:  # forgotten meanwhile
            return
        del self._under_way[key]
        has_failed = task.cancelled() or task.exception() is not None
        if has_failed or task.result().status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return
        kept.size_bytes = len(task.result().body)
        self._done[key] = kept
        self._done_bytes += kept.size_bytes
        while len(self._done) > self._answers_max or self._done_bytes > self._answer_bytes_max:
            _, oldest = self._done.popitem(last=False)
            self._done_bytes -= oldest.size_bytes
