"""First answers to writes, kept so that a repeated request gets the same one and is not done twice."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus

from lightstream.schemas.errors import StoreError

from ._errors import Answer

__all__ = ["AnswerMemory"]

ANSWERS_KEPT_MAX = 20_000
"""A client repeats within a minute or so; at 300 writes a second this is more than one."""

ANSWER_BYTES_KEPT_MAX = 64 * 1024 * 1024
KEY_CHARACTERS_MAX = 200


@dataclass(slots=True)
class _Kept:
    request: bytes
    task: asyncio.Task[Answer]
    awaited: int = 0
    size_bytes: int = 0


class AnswerMemory:
    """Belongs to one event loop. The oldest answers make room; a request under way is never forgotten.

    An answer that reports a failure of ours (5xx) is not kept: the repeated request is done again.
    """

    def __init__(self, answers_max: int = ANSWERS_KEPT_MAX, answer_bytes_max: int = ANSWER_BYTES_KEPT_MAX) -> None:
        self._answers_max = answers_max
        self._answer_bytes_max = answer_bytes_max
        self._under_way: dict[str, _Kept] = {}
        self._done: OrderedDict[str, _Kept] = OrderedDict()
        self._done_bytes = 0

    def __len__(self) -> int:
        return len(self._under_way) + len(self._done)

    async def once(self, key: str, request: bytes, do: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer of ``do``, or the first one under this key; ``do`` runs to its end even if nobody waits for it.

        Args:
            request: digest of the request, to tell a repetition from a key used twice.

        Raises:
            StoreError: the key belongs to another request, or is too long.
        """
        if len(key) > KEY_CHARACTERS_MAX:
            raise StoreError(f"the idempotency key has {len(key)} characters; at most {KEY_CHARACTERS_MAX} are allowed")
        kept = self._under_way.get(key) or self._done.get(key)
        if kept is None:
            kept = _Kept(request, asyncio.ensure_future(_as_coroutine(do)))
            self._under_way[key] = kept
            kept.task.add_done_callback(lambda task: self._finish(key, task))
        elif kept.request != request:
            raise StoreError(f"the idempotency key {key!r} was used for a different request")
        kept.awaited += 1
        try:
            return await asyncio.shield(kept.task)
        finally:
            kept.awaited -= 1

    def forget(self, key: str, *, though_awaited: bool = False) -> asyncio.Task[Answer] | None:
        """What is done or under way under this key, which means nothing from now on; ``None`` while it is awaited."""
        kept = self._under_way.get(key) or self._done.get(key)
        if kept is None or (kept.awaited and not though_awaited):
            return None
        self._under_way.pop(key, None)
        if self._done.pop(key, None) is not None:
            self._done_bytes -= kept.size_bytes
        return kept.task

    def _finish(self, key: str, task: asyncio.Task[Answer]) -> None:
        kept = self._under_way.get(key)
        if kept is None or kept.task is not task:  # forgotten meanwhile
            return
        del self._under_way[key]
        if task.cancelled() or task.exception() is not None or task.result().status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return
        kept.size_bytes = len(task.result().content)
        self._done[key] = kept
        self._done_bytes += kept.size_bytes
        while len(self._done) > self._answers_max or self._done_bytes > self._answer_bytes_max:
            _, oldest = self._done.popitem(last=False)
            self._done_bytes -= oldest.size_bytes


async def _as_coroutine(do: Callable[[], Awaitable[Answer]]) -> Answer:
    return await do()
