"""Queries the view, and splits requests whose answer would be too large."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError, StoreError

from .query_sql import Statement

if TYPE_CHECKING:
    from ...client import AsyncViewClient, QueryResult

QUESTIONS_AT_ONCE_MAX = 8
"""Some of them wait in the view, so that it is never idle."""

KEYS_PER_QUESTION_MAX = 500
"""The view makes 2,048 rows at a time, however large they are, before it cuts an answer off: so that it makes fewer."""

CHARACTERS_PER_QUESTION_MAX = 500_000
"""Of keys, which may take several bytes each: a request may have 4 MiB."""

Offsets: TypeAlias = Mapping[str, Mapping[int, int]]
Key = TypeVar("Key", str, int)


class ViewReader:
    """Belongs to one event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: AsyncViewClient | None = None
        self._places = asyncio.Semaphore(QUESTIONS_AT_ONCE_MAX)
        self._asking: set[asyncio.Task[QueryResult]] = set()
        self._closed = False

    async def close(self) -> None:
        """Close connections. A caller that still waits for an answer is told so, whatever the view does."""
        self._closed = True
        for asking in self._asking:
            asking.cancel()
        if self._client is not None:
            await self._client.close()

    async def ask(self, statement: Statement, at_least: Offsets) -> QueryResult:
        """The answer to a statement, once the view reflects ``at_least``; cut off where it would be too large.

        Raises:
            ServiceUnavailableError: the view does not answer, or does not catch up, or this was closed.
        """
        if self._closed:
            raise ServiceUnavailableError("the store was closed.")
        asking = asyncio.ensure_future(self._answer(statement, at_least))
        self._asking.add(asking)
        try:
            await asyncio.wait([asking])
            if asking.cancelled():
                raise ServiceUnavailableError("the store was closed before the view answered.")
            return asking.result()
        finally:
            self._asking.discard(asking)
            asking.cancel()

    async def _answer(self, statement: Statement, at_least: Offsets) -> QueryResult:
        async with self._places:
            client, (sql, parameters) = await self._connected(), statement
            return await client.query(sql, at_least, params=parameters, wait_s=self._settings.publish_timeout_s)

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
            remaining = part
            while remaining:
                answer = await self.ask(statement_of(remaining), at_least)
                rows = answer.dicts()
                for row in rows:
                    yield row
                if not answer.truncated:
                    break
                if not rows:
                    raise StoreError(
                        f"the answer for {remaining[0]!r:.200} is larger than an answer of the view may be"
                    )
                answered = {row[column] for row in rows}
                remaining = [key for key in remaining if key not in answered]

    async def _connected(self) -> AsyncViewClient:
        if self._client is None:  # a Runner asks the view nothing and needs no HTTP client, which takes 0.1 s to load
            client = await asyncio.to_thread(_import_client)
            self._client = self._client or client(
                self._settings, patience_s=self._settings.publish_timeout_s, lane="stores"
            )
        return self._client


def _import_client() -> type[AsyncViewClient]:
    from ...client import AsyncViewClient

    return AsyncViewClient


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
