"""Runs the statements of requests: each in its lane, stopped when its client leaves, answered in pieces."""

from __future__ import annotations

import asyncio
import re
import threading
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import chain
from typing import TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from duckdb import DuckDBPyConnection
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from lightstream.runtime.http.server import CLIENT_GONE, ClientGoneError, unless_disconnected
from lightstream.runtime.priority import run_behind
from lightstream.schemas.errors import NotFoundError, QueryError

from .admission import LANES, Lane, LaneSize, SqlRequest, lane_named
from .answer import AnswerFormat, accepted_format, pieces_of
from .statement import Parameters, QueryOutcome, Statement, run_query, run_reading
from .watchdog import Watchdog

T = TypeVar("T")

TRUNCATED_HEADER = "x-lightstream-truncated"
REBUILDING_HEADER = "x-lightstream-rebuilding"
QUERY_ID_HEADER = "x-lightstream-query-id"

SENDING_S_MAX = 300.0
"""For a client to take its answer, which keeps its place in the lane and up to 256 MiB until then."""


_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Answering:
    """Answers statements, lists running ones, and cancels them. Belongs to one event loop.

    Args:
        cursor: makes a connection of its own for a statement.
        watchdog: ends the process where a statement does not stop, or takes too much memory.
        sizes: of the lanes.
    """

    def __init__(
        self,
        cursor: Callable[[], DuckDBPyConnection],
        watchdog: Watchdog | None = None,
        sizes: Mapping[str, LaneSize] = LANES,
    ) -> None:
        self._cursor = cursor
        self._watchdog = watchdog
        self._statements = _Statements()
        self.lanes = {name: Lane(name, size) for name, size in sizes.items()}
        self._threads = CapacityLimiter(2 * sum(size.at_once for size in sizes.values()))

    async def answer(self, request: Request, sql_request: SqlRequest, *, rebuilding: bool = False) -> Response:
        """Run a statement and answer in the form that the request accepts. A client that leaves cancels it.

        Args:
            rebuilding: whether the view has yet to read what it had before, which the answer says.

        Raises:
            QueryError: refused, wrong, too slow, or cancelled.
            ServiceUnavailableError: its lane is full.
        """
        try:
            return await unless_disconnected(request, self._answer(request, sql_request, rebuilding))
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE)

    def queries(self) -> list[dict[str, object]]:
        """``{"query_id", "sql", "lane", "seconds", "state"}`` of each statement, the oldest first."""
        return [statement.as_json() for statement in self._statements.all()]

    def cancel(self, query_id: str) -> Response:
        """Stop a statement; its own request is told.

        Raises:
            NotFoundError: it does not run.
        """
        self._statements.cancel(query_id)
        return JSONResponse({"cancelled": query_id})

    async def run(self, sql_request: SqlRequest, lane_name: str) -> QueryOutcome:
        """Run a statement; being cancelled stops it.

        Raises:
            QueryError, ServiceUnavailableError: as :meth:`answer` does.
        """
        lane = self.lanes[lane_name]
        outcome = await self._run_sql(sql_request, self._statement(lane, sql_request))
        lane.leave()
        return outcome

    async def read(
        self,
        request: Request,
        name: str,
        read: Callable[[DuckDBPyConnection], bytes],
        timeout_s: float,
        *,
        lane_name: str,
        rebuilding: bool = False,
    ) -> Response:
        """Answer with the JSON that ``read`` makes of one snapshot, by as many statements as it needs.

        They are to everybody one statement: in a lane, listed by ``name``, cancelled, interrupted after ``timeout_s``.

        Raises:
            QueryError, ServiceUnavailableError: as :meth:`answer` does; and what ``read`` raises.
        """
        query_id = _new_query_id()
        content = self.found(name, read, timeout_s, lane_name=lane_name, query_id=query_id)
        try:
            body = await unless_disconnected(request, content)
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE)
        headers = {REBUILDING_HEADER: str(rebuilding).lower(), QUERY_ID_HEADER: query_id}
        return Response(body, media_type="application/json", headers=headers)

    async def found(
        self,
        name: str,
        read: Callable[[DuckDBPyConnection], T],
        timeout_s: float,
        *,
        lane_name: str,
        query_id: str = "",
    ) -> T:
        """The result of ``read`` in one snapshot, as of :meth:`read`; being cancelled stops it.

        Raises:
            QueryError, ServiceUnavailableError: as :meth:`answer` does; and what ``read`` raises.
        """
        lane = self.lanes[lane_name]
        # Python that makes the answer notices no interrupt, and is no reason to end the process.
        statement = Statement(query_id or _new_query_id(), name, lane.name)
        found = await self._run(statement, None, lane, lambda cursor: run_reading(cursor, read, timeout_s, statement))
        lane.leave()
        return found

    async def _answer(self, request: Request, sql_request: SqlRequest, rebuilding: bool) -> Response:
        lane = self.lanes[lane_named(request.headers)]
        statement = self._statement(lane, sql_request)
        outcome = await self._run_sql(sql_request, statement)
        try:
            answer_format = sql_request.answer_format or accepted_format(request.headers.get("accept", ""))
            pieces = pieces_of(outcome, answer_format, sql_request.integers, rebuilding=rebuilding)
            # What a form cannot hold shows before the answer has begun.
            beginning = await run_sync(lambda: [*_first(pieces, 2)], limiter=self._threads)
        except BaseException:
            lane.leave()
            raise
        headers = {
            TRUNCATED_HEADER: str(outcome.truncated).lower(),
            REBUILDING_HEADER: str(rebuilding).lower(),
            QUERY_ID_HEADER: statement.query_id,
        }
        return _Answer(chain(beginning, pieces), answer_format, headers, lane)

    def _statement(self, lane: Lane, sql_request: SqlRequest) -> Statement:
        on_ignored = None if self._watchdog is None else self._watchdog.on_ignored
        return Statement(sql_request.query_id or _new_query_id(), sql_request.sql, lane.name, on_ignored=on_ignored)

    async def _run_sql(self, sql_request: SqlRequest, statement: Statement) -> QueryOutcome:
        """The outcome, with a place in the lane, which the caller gives back."""

        def run(cursor: DuckDBPyConnection) -> QueryOutcome:
            return run_query(cursor, sql_request.sql, sql_request.limits, sql_request.parameters, statement)

        return await self._run(statement, sql_request.parameters, self.lanes[statement.lane], run)

    async def _run(
        self,
        statement: Statement,
        parameters: Parameters | None,
        lane: Lane,
        run: Callable[[DuckDBPyConnection], T],
    ) -> T:
        """The result of ``run``, with a place in the lane, which the caller gives back."""
        watchdog = self._watchdog
        with self._statements.listed(statement):
            await lane.enter()
            try:
                with nullcontext() if watchdog is None else watchdog.watched(statement, parameters):
                    return await _until_ended(partial(run, self._cursor()), statement, lane.nice)
            except BaseException:
                lane.leave()
                raise


class _Statements:
    """All that run or wait for their place, by id. On any thread."""

    def __init__(self) -> None:
        self._by_id: dict[str, Statement] = {}
        self._changing = threading.Lock()

    @contextmanager
    def listed(self, statement: Statement) -> Generator[None]:
        """List a statement while the block runs.

        Raises:
            QueryError: its id is that of another that runs, or is none.
        """
        if not _ID.fullmatch(statement.query_id):
            raise QueryError(
                f"'query_id' must be 1 to 64 letters, digits, '_', '-' and '.', not {statement.query_id!r:.100}."
            )
        with self._changing:
            if statement.query_id in self._by_id:
                raise QueryError(f"a statement with the query_id {statement.query_id} runs already.")
            self._by_id[statement.query_id] = statement
        try:
            yield
        finally:
            with self._changing:
                del self._by_id[statement.query_id]

    def all(self) -> list[Statement]:
        """In order of arrival."""
        with self._changing:
            return list(self._by_id.values())

    def cancel(self, query_id: str) -> None:
        """Stop a statement.

        Raises:
            NotFoundError: none of that id runs or waits.
        """
        with self._changing:
            statement = self._by_id.get(query_id)
        if statement is None:
            raise NotFoundError(f"no statement {query_id} runs.", next_step="GET /v1/queries lists running ones.")
        statement.cancel()


def _new_query_id() -> str:
    """Return an id that no other statement has."""
    return uuid.uuid4().hex


class _Answer(StreamingResponse):
    """An answer that gives its place in the lane back when it was sent, or its client has left."""

    def __init__(
        self, pieces: Iterator[bytes], answer_format: AnswerFormat, headers: dict[str, str], lane: Lane
    ) -> None:
        super().__init__(pieces, media_type=answer_format.media_type, headers=headers)
        self._lane = lane

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(SENDING_S_MAX):
                await super().__call__(scope, receive, send)
        finally:
            self._lane.leave()


async def _until_ended(run: Callable[[], T], statement: Statement, nice: int) -> T:
    """The outcome. When cancelled, the statement is stopped, and its place is kept until it is gone."""
    running = asyncio.wrap_future(run_behind(run, nice, "lightstream-statement"))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        statement.cancel()
        await asyncio.wait((running,))
        running.exception()  # that it was stopped is for nobody to know
        raise


def _first(pieces: Iterator[bytes], count: int) -> Generator[bytes]:
    for _, piece in zip(range(count), pieces, strict=False):
        yield piece
