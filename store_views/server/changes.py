"""``GET /v1/changes``: tells readers when to ask again, as server-sent events.

    event: change
    data: {"tables": ["rollouts", …], "positions": {"rollouts": {"0": 17}}, "rebuilding": false}

``tables`` are the tables and views that may answer otherwise than before, ``positions`` the offsets that the topics
behind them have reached. The first event names all. Events that come faster than a reader takes them, or more than
five a second, are joined.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping

from starlette.responses import JSONResponse, Response, StreamingResponse

from lightstream.runtime.http.errors import view_error
from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.topics import TOPICS

from ..materialiser import Place, ViewSource
from ..tables import KEPT_TABLES, tables_of
from ..views import VIEWS

LISTENERS_MAX = 100
EVENT_INTERVAL_S = 0.2
KEEP_ALIVE_S = 15.0
"""Proxies close connections on which nothing came for a minute or less."""


def tables_behind() -> dict[str, list[str]]:
    """Topic -> names of the tables and views with rows of its records."""
    reads = {view.name: set(re.findall(r"\w+", view.select)) for view in VIEWS}
    found: dict[str, list[str]] = {}
    for topic in TOPICS:
        names = {table.name for record in topic.records for table in tables_of(record)}
        names |= {table.name for table in KEPT_TABLES if set(table.records) & set(topic.records)}
        for view in VIEWS:  # in an order in which each comes after those it reads
            if reads[view.name] & names:
                names.add(view.name)
        found[topic.name] = sorted(names)
    return found


class Changes:
    """Streams of changes, for one event loop."""

    def __init__(self, materialiser: ViewSource) -> None:
        self._materialiser = materialiser
        self._tables = tables_behind()
        self._wakes: set[asyncio.Event] = set()
        self._is_closed = False

    def response(self) -> Response:
        """A stream of its own for one listener; an error where there are too many."""
        if len(self._wakes) >= LISTENERS_MAX:
            message = f"{LISTENERS_MAX} listeners follow the changes, the most allowed."
            error = ServiceUnavailableError(message, next_step="Ask again later.")
            return JSONResponse(view_error(error), status_code=503, headers={"retry-after": "5"})
        return StreamingResponse(
            self._events(), media_type="text/event-stream", headers={"cache-control": "no-cache, no-transform"}
        )

    def close(self) -> None:
        """End all streams. In the event loop."""
        self._is_closed = True
        for wake in self._wakes:
            wake.set()

    async def _events(self) -> AsyncGenerator[str, None]:
        positions, wake, loop = self._materialiser.positions, asyncio.Event(), asyncio.get_running_loop()
        sent: Mapping[Place, int] | None = None
        was_rebuilding = False

        def moved_on() -> None:
            loop.call_soon_threadsafe(wake.set)

        self._wakes.add(wake)
        try:
            with positions.listening(moved_on):
                while not self._is_closed and positions.closed is None:
                    wake.clear()
                    now, rebuilding = positions.snapshot(), self._materialiser.rebuilding is not None
                    moved = {place: offset for place, offset in now.items() if (sent or {}).get(place) != offset}
                    if moved or sent is None or rebuilding != was_rebuilding:
                        yield self._event(moved, rebuilding)
                        sent, was_rebuilding = now, rebuilding
                        await asyncio.sleep(EVENT_INTERVAL_S)
                    try:
                        await asyncio.wait_for(wake.wait(), KEEP_ALIVE_S)
                    except TimeoutError:
                        yield ": still here\n\n"
        finally:
            self._wakes.discard(wake)

    def _event(self, moved: Mapping[Place, int], rebuilding: bool) -> str:
        positions: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in sorted(moved.items()):
            positions.setdefault(topic, {})[str(partition)] = offset
        tables = sorted({name for topic in positions for name in self._tables[topic]})
        data = {"tables": tables, "positions": positions, "rebuilding": rebuilding}
        return f"event: change\ndata: {json.dumps(data)}\n\n"
