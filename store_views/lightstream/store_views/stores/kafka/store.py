"""The store on Kafka: events go to ``rollout-events``, verdicts come from ``rollouts``, queries ask the view."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from lightstream.runtime.clock import NANOS_PER_SECOND, Clock
from lightstream.runtime.services import find, otlp_traces_url
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.records import (
    AttemptState,
    ResourcesRecord,
    RolloutState,
    RolloutStatus,
    WorkerHeartbeat,
)
from lightstream.schemas.topics import RESOURCES, ROLLOUTS, SPANS, Topic
from lightstream.schemas.types import (
    LightningStoreCapabilities,
    LightningStoreStatistics,
    LogPositions,
    Rollout,
    Span,
)

from .._checks import check_timeout, checked_ids
from .._ends import Ends, enough
from .._query import Query
from . import spans_sql, sql
from .end_offsets import EndOffsets, ends_in_kafka
from .log_id import log_id
from .query_sql import Parameters, Statement
from .rows import attempts_of_row, resources_of_row, state_of_row
from .spans import span_of_row
from .view_reader import Offsets, ViewReader
from .writing import GIVE_BACK_S, KafkaWriting

__all__ = ["KafkaLightningStore"]

T = TypeVar("T")

STATUSES_AT_ONCE_MAX = 10_000
"""Rollouts whose status is asked for at once: two short columns each."""

STATISTICS_SQL = """
SELECT
    (SELECT count(*) FROM rollouts), (SELECT coalesce(sum(attempt_count), 0) FROM rollouts),
    (SELECT count(*) FROM spans)
"""


class KafkaLightningStore(KafkaWriting):
    """A store for processes that reach Kafka.

    Each write waits for the life cycle's verdict, up to ``settings.publish_timeout_s`` seconds, so a restart of the
    broker or of the worker in between costs time and nothing else. Queries ask the view, which first catches up with
    what this store has written or was told, and may be away for as long; writing and dequeuing need no view.

    Args:
        settings: names the cluster and the topics.
    """

    def __init__(self, settings: Settings, *, clock: Clock | None = None) -> None:
        super().__init__(settings, clock=clock)
        self._view = ViewReader(settings)
        self._end_offsets = EndOffsets(ends_in_kafka(settings))
        self._log_id = ""
        self._started_unix_nano = self._clock.now_unix_nano()

    async def start(self) -> None:
        """Connect. Call once, before anything else.

        Raises:
            ServiceUnavailableError: Kafka does not answer or lacks our topics.
        """
        await asyncio.to_thread(self._tail.start)
        self._log_id = await asyncio.to_thread(log_id, self._settings)

    @property
    def capabilities(self) -> LightningStoreCapabilities:
        has_gateway = self._settings.gateway_url is not None or find(self._settings, "gateway") is not None
        return LightningStoreCapabilities(thread_safe=True, async_safe=True, zero_copy=False, otlp_traces=has_gateway)

    def otlp_traces_endpoint(self) -> str:
        """URL of the OTLP gateway's traces, which names rollout and attempt in the resource or anywhere else.

        Raises:
            ServiceUnavailableError: no gateway is named or runs here.
        """
        return otlp_traces_url(self._settings)

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._lock:
            self._is_closed = True
        if self._dispatch is not None:
            self._dispatch.close(GIVE_BACK_S)
        self._worker_news.tell()
        self._publisher.close()
        self._span_publisher.close()
        self._tail.stop()
        self._view.close()

    async def statistics(self) -> LightningStoreStatistics:
        rollouts, attempts, spans = (await self._view.ask(Statement(STATISTICS_SQL, Parameters()), self._known())).rows[
            0
        ]
        return LightningStoreStatistics(
            name=type(self).__name__,
            total_rollouts=rollouts,
            total_attempts=attempts,
            total_spans=spans,
            total_resources=await self._tail.resources.count(),
            total_workers=len(self._tail.workers.all()),
            uptime=(self._clock.now_unix_nano() - self._started_unix_nano) / NANOS_PER_SECOND,
        )

    async def _page_of(self, query: Query) -> tuple[list[RolloutState], int]:
        answer = await self._view.ask(sql.page_and_count_sql(query), self._known())
        if answer.truncated:
            return await self._large_page_of(query)
        rows = answer.dicts()
        if rows:
            return [state_of_row(row) for row in rows], int(rows[0]["total"])
        # A page beyond the last has no row that could tell.
        if query.offset == 0 and query.limit != 0:
            return [], 0
        return [], int((await self._view.ask(sql.count_sql(query), self._known())).scalar())

    async def _large_page_of(self, query: Query) -> tuple[list[RolloutState], int]:
        """A page larger than an answer may be: which rollouts are on it, and then these, some hundred at a time.

        Each is on it once. One that does not match any more when its turn comes is left out.
        """
        ids, total = (await self._view.ask(sql.ids_and_count_sql(query), self._known())).rows[0]
        found = await self._found(ids, partial(sql.states_sql, query=query))
        return [found[rollout_id] for rollout_id in ids if rollout_id in found], int(total)

    async def wait_for_rollouts(
        self,
        *,
        rollout_ids: Sequence[str],
        timeout: float | None = None,  # noqa: ASYNC109  # the interface's name
        count: int | None = None,
        share: float | None = None,
    ) -> list[Rollout]:
        wanted = checked_ids("rollout_ids", rollout_ids)
        check_timeout("timeout", timeout, may_be_none=True)
        asked = list(dict.fromkeys(wanted))
        needed = enough(len(asked), count, share)
        if not asked:
            return []
        until_s = math.inf if timeout is None else time.monotonic() + timeout
        ends = Ends({rollout_id: self._tail.expect_terminal(rollout_id) for rollout_id in asked}, needed)
        # What the tail has passed already it will not tell again: the view must know of it.
        asking = asyncio.create_task(self._ended_of(asked, self._tail.read_up_to()))
        patience_s = None if timeout is None else max(timeout, self._settings.publish_timeout_s)
        either: list[asyncio.Future[Any]] = [asking, ends.enough]
        try:
            await asyncio.wait(either, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
            if not ends.enough.done():  # else nobody needs to know what was over before
                ended, open_ids = _answered(asking)
                ends.add(ended)
                ends.forget(set(asked) - open_ids)
                await ends.within(None if timeout is None else max(0.0, until_s - time.monotonic()))
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            ends.close()
        return [ends.ended[rollout_id] for rollout_id in wanted if rollout_id in ends.ended]

    async def _state_of(self, rollout_id: str) -> RolloutState | None:
        return (await self._states_of([rollout_id])).get(rollout_id)

    async def _states_of(self, rollout_ids: Sequence[str]) -> dict[str, RolloutState]:
        return await self._found(rollout_ids, sql.states_sql)

    async def _attempts_of(self, rollout_ids: Sequence[str]) -> dict[str, list[AttemptState]]:
        rows = self._view.rows_of(rollout_ids, sql.attempts_sql, "rollout_id", self._known())
        return {row["rollout_id"]: attempts_of_row(row) async for row in rows}

    async def _found(
        self, rollout_ids: Sequence[str], statement_of: Callable[[Sequence[str]], Statement]
    ) -> dict[str, RolloutState]:
        """By id, the states of those of these rollouts that the statement finds."""
        rows = self._view.rows_of(rollout_ids, statement_of, "rollout_id", self._known())
        return {row["rollout_id"]: state_of_row(row) async for row in rows}

    async def _ended_of(
        self, rollout_ids: Sequence[str], at_least: Mapping[int, int]
    ) -> tuple[dict[str, RolloutState], set[str]]:
        """Of these rollouts, the states of those that are over, and the ids of those that are not.

        Args:
            at_least: offsets in ``rollouts`` that the answer must reflect.
        """
        known = self._known(at_least)
        rows = self._view.rows_of(rollout_ids, sql.statuses_sql, "rollout_id", known, keys_max=STATUSES_AT_ONCE_MAX)
        statuses = {row["rollout_id"]: RolloutStatus(row["status"]) async for row in rows}
        over = [rollout_id for rollout_id, status in statuses.items() if status.is_terminal]
        return await self._states_of(over), statuses.keys() - set(over)

    async def _page_of_spans(self, rollout_id: str, attempt_id: str | None, query: Query) -> tuple[list[Span], int]:
        asked = (rollout_id, attempt_id, query)
        answer = await self._view.ask(spans_sql.spans_page_sql(*asked), self._known())
        if answer.truncated:
            offsets, total = (await self._view.ask(spans_sql.span_offsets_sql(*asked), self._known())).rows[0]
            statement_of = partial(spans_sql.spans_at_sql, rollout_id)
            rows = self._view.rows_of(offsets, statement_of, "log_offset", self._known())
            spans = {row["log_offset"]: span_of_row(row) async for row in rows}
            return [spans[offset] for offset in offsets], int(total)
        rows_of_page = answer.dicts()
        if rows_of_page:
            return [span_of_row(row) for row in rows_of_page], int(rows_of_page[0]["total"])
        if query.offset == 0 and query.limit != 0:
            return [], 0
        return [], int((await self._view.ask(spans_sql.span_count_sql(*asked), self._known())).scalar())

    async def _all_resources(self) -> list[ResourcesRecord]:
        return await self._tail.resources.all()

    async def _older_resources(self, resources_ids: Sequence[str]) -> Mapping[str, ResourcesRecord]:
        told = {RESOURCES.name: self.positions().offsets[RESOURCES.name]}
        rows = self._view.rows_of(resources_ids, sql.resources_sql, "resources_id", told)
        return {row["resources_id"]: resources_of_row(row) async for row in rows}

    async def _all_workers(self) -> list[WorkerHeartbeat]:
        return self._tail.workers.all()

    def positions(self) -> LogPositions:
        latest = self._tail.resources.latest_offset()
        resources = {0: latest} if latest >= 0 else {}
        rollouts, spans = self._tail.answered_at(), self._span_writer.last()
        told = {ROLLOUTS.name: rollouts, SPANS.name: spans, RESOURCES.name: resources}
        return LogPositions(self._log_id, told)

    def see(self, positions: LogPositions) -> None:
        if positions.log != self._log_id:
            return
        rollouts, spans, resources = (positions.offsets.get(topic.name, {}) for topic in (ROLLOUTS, SPANS, RESOURCES))
        told = self.positions().offsets
        self._check(ROLLOUTS, rollouts, told[ROLLOUTS.name], self._tail.read_up_to())
        self._check(SPANS, spans, told[SPANS.name])
        self._check(RESOURCES, resources, told[RESOURCES.name])
        self._tail.answered(rollouts)
        self._span_writer.seen(spans)
        for offset in resources.values():
            self._tail.resources.seen(offset)

    def _check(self, topic: Topic, offsets: Mapping[int, int], *known: Mapping[int, int]) -> None:
        """Refuse to wait for what is not in the log, and to tell others of it."""
        news = {
            partition: offset
            for partition, offset in offsets.items()
            if all(offset > mine.get(partition, -1) for mine in known)
        }
        if news:
            self._end_offsets.check(topic.name, news)

    def _known(self, rollouts_at_least: Mapping[int, int] | None = None) -> Offsets:
        """What an answer of the view must reflect: all that this store wrote or was told of, and what is named."""
        told = self.positions().merged(LogPositions(self._log_id, {ROLLOUTS.name: rollouts_at_least or {}})).offsets
        return {topic: told[topic] for topic in (ROLLOUTS.name, SPANS.name)}


def _answered(asking: asyncio.Task[T]) -> T:
    """The view's answer.

    Raises:
        ServiceUnavailableError: there is none yet.
    """
    if not asking.done():
        raise ServiceUnavailableError(
            "the view does not answer, so it is unknown which rollouts had ended before.",
            next_step="Is it running? `lightstream status` shows it; `lightstream view` starts it.",
        )
    return asking.result()
