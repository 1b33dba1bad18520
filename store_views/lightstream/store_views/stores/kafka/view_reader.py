"""Asks the view from an event loop, and for more than one answer holds in parts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError, StoreError

from .._loop_calls import future_in
from .query_sql import Statement

if TYPE_CHECKING:
    from ...client import QueryResult, ViewClient

__all__ = ["Offsets", "ViewReader"]

QUESTIONS_AT_ONCE_MAX = 8
"""A thread each; as many as the view answers at once."""

KEYS_PER_QUESTION_MAX = 500
"""The view makes 2,048 rows at a time, however large they are, before it cuts an answer off: so that it makes fewer."""

CHARACTERS_PER_QUESTION_MAX = 500_000
"""Of keys, which may take several bytes each: a request may have 4 MiB."""

Offsets: TypeAlias = Mapping[str, Mapping[int, int]]
Key = TypeVar("Key", str, int)


class ViewReader:
    """Thread-safe; any number of event loops may use it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._client: ViewClient | None = None
        self._threads = ThreadPoolExecutor(QUESTIONS_AT_ONCE_MAX, thread_name_prefix="lightstream-store")
        self._awaited: set[Future[QueryResult]] = set()

    def close(self) -> None:
        """Close connections. Whoever still waits for an answer is told, whatever the view does.

        A thread that a silent view holds up ends when its time is over.
        """
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            awaited, client = list(self._awaited), self._client
        for answer in awaited:
            answer.cancel()
        if client is not None:
            client.close()

    async def ask(self, statement: Statement, at_least: Offsets) -> QueryResult:
        """The answer to a statement, once the view reflects ``at_least``; cut off where it would be too large.

        Raises:
            ServiceUnavailableError: the view does not answer, or does not catch up, or this was closed.
        """

        def ask() -> QueryResult:  # the first loads the HTTP client: 0.1 s, in this thread too
            sql, parameters = statement
            return self._connected().query(sql, at_least, params=parameters, wait_s=self._settings.publish_timeout_s)

        answer: Future[QueryResult] = Future()
        with self._lock:
            self._awaited.add(answer)
        try:
            asking = self._begun(ask)
            asking.add_done_callback(partial(_pass_on, answer))
            try:
                return await future_in(asyncio.get_running_loop(), answer)
            finally:
                asking.cancel()  # if it has not begun, nobody waits for it any more
        finally:
            with self._lock:
                self._awaited.discard(answer)

    def _begun(self, ask: Callable[[], QueryResult]) -> Future[QueryResult]:
        try:
            return self._threads.submit(ask)
        except RuntimeError as error:  # so says a pool that was shut down
            raise ServiceUnavailableError("the store was closed.") from error

    async def rows_of(
        self,
        keys: Sequence[Key],
        statement_of: Callable[[Sequence[Key]], Statement],
        column: str,
        at_least: Offsets,
        *,
        keys_max: int = KEYS_PER_QUESTION_MAX,
    ) -> AsyncGenerator[dict[str, Any]]:
        """The rows that have one of these keys, in any order, as many questions as it takes.

        Args:
            statement_of: asks for the rows of some keys, in any order.
            column: where a row has its key.
            keys_max: per question.

        Raises:
            ServiceUnavailableError: as :meth:`ask`.
            StoreError: a single row is larger than an answer may be.
        """
        for part in _parts(keys, keys_max):
            left = part
            while left:
                answer = await self.ask(statement_of(left), at_least)
                rows = answer.dicts()
                for row in rows:
                    yield row
                if not answer.truncated:
                    break
                if not rows:
                    raise StoreError(f"what {left[0]!r:.200} names is larger than an answer of the view may be")
                came = {row[column] for row in rows}
                left = [key for key in left if key not in came]

    def _connected(self) -> ViewClient:
        from ...client import ViewClient  # a Runner asks the view nothing and needs no HTTP client

        with self._lock:
            if self._client is None:
                self._client = ViewClient(self._settings, patience_s=self._settings.publish_timeout_s)
            return self._client


def _pass_on(answer: Future[QueryResult], asked: Future[QueryResult]) -> None:
    """Resolve ``answer`` as ``asked`` was; not if it was cancelled before."""
    if asked.cancelled():
        answer.cancel()
    elif answer.set_running_or_notify_cancel():
        if (error := asked.exception()) is not None:
            answer.set_exception(error)
        else:
            answer.set_result(asked.result())


def _parts(keys: Sequence[Key], keys_max: int) -> Iterator[Sequence[Key]]:
    """The keys in their order, so many at a time that a question holds them."""
    part: list[Key] = []
    characters = 0
    for key in keys:
        size = len(key) if isinstance(key, str) else len(str(key))
        if part and (len(part) == keys_max or characters + size > CHARACTERS_PER_QUESTION_MAX):
            yield part
            part, characters = [], 0
        part.append(key)
        characters += size
    if part:
        yield part
