"""Checks of a request before its statement runs: its body, its lane, and the positions it needs.

Statements wait only for others of their lane. Readers who name no offsets see what had been fetched when they asked.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar, cast, get_args

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.requests import Request

from lightstream.runtime.http.server import unless_disconnected
from lightstream.schemas.errors import NotFoundError, QueryError, ServiceUnavailableError
from lightstream.schemas.topics import topic_named

from ..materialiser import Place, ViewSource
from ..materialiser.positions import Positions
from ..queries import named_query
from .answer import AnswerFormat, Integers
from .statement import Parameters, QueryLimits

T = TypeVar("T")

REQUEST_BYTES_MAX = 4 * 1024 * 1024
"""Room for a few thousand ids in an IN list, and no more."""
WAIT_S_DEFAULT = 30.0
WAIT_S_MAX = 3600.0
TIMEOUT_S_MIN = 0.01
_KEYS = frozenset({"sql", "params", "at_least", "wait_s", "timeout_s", "rows_max", "query_id", "format", "integers"})

LANE_HEADER = "x-lightstream-lane"
"""A request's header that names its lane."""

QUEUE_S_MAX = 30.0
"""Longest wait for a place."""

FRESH_WAIT_S = 0.1
"""For which a query that names no offset waits for what has been fetched."""

HANG_UP_S = 1.0
"""For which the thread of a request that waits sleeps on when its client has hung up."""


@dataclass(frozen=True, slots=True)
class SqlRequest:
    """A checked request.

    Attributes:
        parameters: values of the statement's placeholders; ``None`` without any.
        wanted: place -> next offset that the view must have reached first; ``"now"`` means the log's present end.
        wait_s: how long it may take to get there.
        query_id: names the statement to who may cancel it; empty for an id of the server's choice.
        answer_format: form of the answer; ``None`` for what the request's ``Accept`` says.
        integers: how integers beyond 2^53 are written in JSON.
    """

    sql: str
    parameters: Parameters | None
    required: dict[Place, int] | Literal["now"]
    wait_s: float
    limits: QueryLimits
    query_id: str = ""
    answer_format: AnswerFormat | None = None
    integers: Integers = "number"


def parse_request(body: bytes, limits: QueryLimits) -> SqlRequest:
    """Check a body. ``at_least`` names *offsets of records*: ``{topic: {partition: offset}}``, or is ``"now"``.

    ``sql`` may be the name of a named query, ``:stuck``; ``params`` are then those of its parameters that differ.

    Raises:
        QueryError: says which key is wrong and what it may be.
    """
    try:
        found: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise QueryError(f"the body is not JSON: {error}.", next_step='Send {"sql": "select …"}.') from error
    if not isinstance(found, dict):
        raise QueryError("the body is not an object.", next_step='Send {"sql": "select …"}.')
    values = cast("dict[str, Any]", found)
    unknown = set(values) - _KEYS
    if unknown:
        raise QueryError(f"unknown keys {sorted(unknown)}; there are {sorted(_KEYS)}.")
    sql = values.get("sql")
    if not isinstance(sql, str) or not sql.strip():
        raise QueryError("'sql' must be a statement.")
    rows_max = values.get("rows_max", limits.rows_max)
    if type(rows_max) is not int or not 1 <= rows_max <= limits.rows_max:
        raise QueryError(f"'rows_max' must be a whole number from 1 to {limits.rows_max:,}, not {rows_max!r}.")
    timeout_s = _seconds(
        values, "timeout_s", limits.timeout_s, (TIMEOUT_S_MIN, limits.timeout_s_max), "LIGHTSTREAM_VIEW_TIMEOUT_S_MAX"
    )
    limits = replace(limits, rows_max=rows_max, timeout_s=timeout_s)
    parameters = values.get("params")
    if parameters is not None and not isinstance(parameters, (list, dict)):
        raise QueryError(
            f"'params' must be a list (of ? and $1) or an object (of $name), not {parameters!r:.100}.",
            next_step='Send {"sql": "FROM rollouts WHERE run_id = $run", "params": {"run": "my-run"}}.',
        )
    if sql.lstrip().startswith(":"):
        sql, parameters = _named(sql.strip(), parameters)
    wait_s = _seconds(values, "wait_s", WAIT_S_DEFAULT, (0.0, WAIT_S_MAX))
    answer_format = _one_of(values, "format", [*AnswerFormat])
    return SqlRequest(
        sql,
        cast("Parameters | None", parameters),
        _required(values.get("at_least")),
        wait_s,
        limits,
        _query_id(values),
        None if answer_format is None else AnswerFormat(answer_format),
        cast("Integers", _one_of(values, "integers", get_args(Integers)) or "number"),
    )


def _named(name: str, given: Any) -> tuple[str, Parameters]:
    """The statement of a named query, and all its values."""
    try:
        query = named_query(name)
    except NotFoundError as error:
        raise QueryError(error.message, next_step="`GET /v1/named-queries` lists them.") from error
    if isinstance(given, list):
        raise QueryError(f"'params' of {name} must be an object: its parameters have names.")
    return query.statement(given or {})


def _query_id(values: dict[str, Any]) -> str:
    query_id = values.get("query_id", "")
    if not isinstance(query_id, str):
        raise QueryError(f"'query_id' must be text, not {query_id!r:.100}.")
    return query_id


def _one_of(values: dict[str, Any], key: str, known: Sequence[str]) -> str | None:
    value = values.get(key)
    if value is not None and value not in known:
        raise QueryError(f"{key!r} must be one of {', '.join(known)}, not {value!r:.100}.")
    return value


def _seconds(
    values: dict[str, Any], key: str, default: float, allowed: tuple[float, float], setting: str = ""
) -> float:
    """A number of seconds within ``allowed``, whose upper end ``setting`` moves."""
    value = values.get(key, default)
    if value is None:
        return default
    least, most = allowed
    if type(value) not in (int, float) or not least <= value <= most:
        raise QueryError(
            f"{key!r} must be a number of seconds from {least:g} to {most:g}, not {value!r}.",
            next_step=f"The view's {setting} is the most that it allows." if setting else "",
        )
    return float(value)


def _required(at_least: Any) -> dict[Place, int] | Literal["now"]:
    if at_least is None:
        return {}
    if at_least == "now":
        return "now"
    required: dict[Place, int] = {}
    try:
        for topic, offsets in at_least.items():
            topic_named(topic)
            for partition, offset in offsets.items():
                required[topic, int(partition)] = int(offset) + 1
    except KeyError as error:
        raise QueryError(f"'at_least': {error.args[0]}.") from error
    except (AttributeError, TypeError, ValueError) as error:
        raise QueryError(
            f"'at_least' must be {{topic: {{partition: offset}}}} or \"now\", not {at_least!r}."
        ) from error
    return required


@dataclass(frozen=True, slots=True)
class LaneSize:
    """The statements that a lane may take at once, and how.

    Attributes:
        at_once: statements that run at once.
        waiting_max: how many may wait for each kind of place.
        catching_up_max: requests at once whose statements are to wait until the view has caught up: a thread each,
            asleep.
        nice: how far their threads are behind those of training, of pages, and of the materialiser, as of ``nice(1)``.
    """

    at_once: int
    waiting_max: int
    catching_up_max: int
    nice: int = 0


LANES: Mapping[str, LaneSize] = {
    "stores": LaneSize(at_once=4, waiting_max=512, catching_up_max=200),
    "dashboard": LaneSize(at_once=3, waiting_max=64, catching_up_max=64),
    "others": LaneSize(at_once=4, waiting_max=32, catching_up_max=64, nice=10),
}
"""Queries of training, of pages, and all others: a lane that is full keeps nobody waiting in another."""


class Places:
    """Places of one kind in a lane, and a queue for them. Belongs to one event loop.

    Args:
        lane: its name.
        taken_by: what has the places, as the error says it.
        next_step: what to do where they are taken, and the queue is full.
    """

    def __init__(self, lane: str, at_once: int, waiting_max: int, taken_by: str, next_step: str) -> None:
        self._lane = lane
        self._at_once = at_once
        self._waiting_max = waiting_max
        self._taken_by = taken_by
        self._next_step = next_step
        self._places = asyncio.Semaphore(at_once)
        self._waiting = 0

    @property
    def are_taken(self) -> bool:
        """Whether who enters now has to wait."""
        return self._places.locked()

    async def enter(self) -> None:
        """Wait for a place; its owner calls :meth:`leave`.

        Raises:
            ServiceUnavailableError: too many wait, or it took too long.
        """
        if self.are_taken and self._waiting >= self._waiting_max:
            raise self._full(f"{self._waiting} wait")
        self._waiting += 1
        try:
            async with asyncio.timeout(QUEUE_S_MAX):
                await self._places.acquire()
        except TimeoutError:
            raise self._full(f"none ended within {QUEUE_S_MAX:g} s") from None
        finally:
            self._waiting -= 1

    def leave(self) -> None:
        """Give the place to who waits next."""
        self._places.release()

    def _full(self, why: str) -> ServiceUnavailableError:
        return ServiceUnavailableError(
            f"the lane {self._lane!r} is full: {self._at_once} {self._taken_by} and {why}.", next_step=self._next_step
        )


class Lane(Places):
    """Places of one kind of statement; and ``catching_up``, the places to wait in until the view has the positions."""

    def __init__(self, name: str, size: LaneSize) -> None:
        super().__init__(
            name,
            size.at_once,
            size.waiting_max,
            "statements run",
            "Ask again in a moment, or end one: GET /v1/queries lists them, DELETE /v1/queries/ID cancels.",
        )
        self.name = name
        self.nice = size.nice
        self.catching_up = Places(
            name,
            size.catching_up_max,
            size.waiting_max,
            "requests wait for the view to catch up",
            "Ask again in a moment; a shorter wait_s frees places sooner.",
        )
        self._sleeping = CapacityLimiter(size.catching_up_max)

    async def catch_up(self, wait: Callable[[], T], *, until: Callable[[T], bool] | None = None) -> T:
        """The result of ``wait``, which sleeps in a thread, with one of the places to wait for the view.

        Args:
            until: whether a result will do; else ``wait`` is called again. A caller that is cancelled leaves a thread
                behind until the call under way returns.

        Raises:
            ServiceUnavailableError: too many of the lane wait already.
        """
        await self.catching_up.enter()
        try:
            while True:
                result = await run_sync(wait, limiter=self._sleeping)
                if until is None or until(result):
                    return result
        finally:
            self.catching_up.leave()


def lane_named(headers: Mapping[str, str], default: str = "others") -> str:
    """Return the name of a request's lane; ``default`` where it names none.

    Raises:
        QueryError: there is no such lane.
    """
    name = headers.get(LANE_HEADER, default)
    if name not in LANES:
        raise QueryError(f"{LANE_HEADER} is {name!r:.100}; there are {', '.join(LANES)}.")
    return name


async def wait_for_view(request: Request, materialiser: ViewSource, sql_request: SqlRequest, lane: Lane) -> None:
    """Wait until the view has the positions that the request names; without a name, all fetched ones.

    Raises:
        ServiceUnavailableError: it has not got there in time, or has stopped; or too many of the lane wait already.
        ClientGoneError: the client has disconnected.
    """
    required = (
        sql_request.required
        if isinstance(sql_request.required, dict)
        else await lane.catch_up(materialiser.end_offsets_now)
    )
    if not required:
        await wait_for_fetched(materialiser, lane)
        return
    if not materialiser.positions.missing(required):
        return
    missing = await unless_disconnected(request, _missing(materialiser.positions, required, sql_request.wait_s, lane))
    if missing:
        places = ", ".join(f"{t}/{p} is at {at}, not {to}" for (t, p), (to, at) in sorted(missing.items()))
        failure = materialiser.failure
        raise ServiceUnavailableError(
            f"the view has not caught up within {sql_request.wait_s:g} s: {places}."
            if failure is None
            else f"the view has stopped: {failure}",
            next_step="Ask again, or allow more time with wait_s." if failure is None else "",
        )


async def _missing(
    positions: Positions, required: dict[Place, int], wait_s: float, lane: Lane
) -> dict[Place, tuple[int, int]]:
    """Wait for the required next offsets, and return the missing ones. May be cancelled."""
    give_up_s = time.monotonic() + wait_s

    def wait() -> dict[Place, tuple[int, int]]:
        return positions.wait_for(required, min(HANG_UP_S, max(0.0, give_up_s - time.monotonic())))

    return await lane.catch_up(
        wait, until=lambda missing: not missing or positions.closed is not None or time.monotonic() >= give_up_s
    )


async def wait_for_fetched(materialiser: ViewSource, lane: Lane) -> None:
    """Let fetched records be seen, if that takes no longer than a reader would notice.

    Where others wait in all places of the lane, what is there has to do.
    """
    positions = materialiser.positions
    positions.look()
    fetched = materialiser.fetched()
    if materialiser.rebuilding is not None or lane.catching_up.are_taken:
        return
    if positions.missing(fetched):
        await lane.catch_up(partial(positions.wait_for, fetched, FRESH_WAIT_S, urgent=False))
