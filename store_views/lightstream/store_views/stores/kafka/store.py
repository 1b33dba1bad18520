"""The store on Kafka: facts go to ``rollout-events``, verdicts come from ``rollouts``, queries ask the view."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lightstream.schemas.clock import NANOS_PER_SECOND, Clock
from lightstream.schemas.errors import ServiceUnavailableError, StoreError
from lightstream.schemas.records import (
    ResourcesRecord,
    RolloutState,
    WorkerHeartbeat,
)
from lightstream.schemas.services import find, otlp_traces_url
from lightstream.schemas.settings import Settings
from lightstream.schemas.topics import RESOURCES, ROLLOUTS, SPANS
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
from . import sql
from .log_id import log_id
from .rows import state_of_row
from .spans import span_of_row
from .writing import GIVE_BACK_S, KafkaWriting

if TYPE_CHECKING:
    from ...client import QueryResult, ViewClient

__all__ = ["KafkaLightningStore"]

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
        self._view: ViewClient | None = None
        self._log_id = ""
        self._started_unix_nano = self._clock.now_unix_nano()

    async def start(self) -> None:
        """Connect. Call once, before anything else.

        Raises:
            ServiceUnavailableError: Kafka does not answer or lacks our topics.
        """
        await asyncio.to_thread(self._follower.start)
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
        if self._hand_out is not None:
            self._hand_out.close(GIVE_BACK_S)
        self._worker_news.tell()
        self._publisher.close()
        self._span_publisher.close()
        self._follower.stop()
        if self._view is not None:
            self._view.close()
        self._waiting.shutdown(wait=True, cancel_futures=True)

    def _view_client(self) -> ViewClient:
        from ...client import ViewClient  # a Runner asks the view nothing and needs no HTTP client

        with self._lock:
            if self._view is None:
                self._view = ViewClient(self._settings, patience_s=self._settings.publish_timeout_s)
            return self._view

    async def statistics(self) -> LightningStoreStatistics:
        rollouts, attempts, spans = (await self._ask(STATISTICS_SQL)).rows[0]
        return LightningStoreStatistics(
            name=type(self).__name__,
            total_rollouts=rollouts,
            total_attempts=attempts,
            total_spans=spans,
            total_resources=len(await self._all_resources()),
            total_workers=len(self._follower.workers.all()),
            uptime=(self._clock.now_unix_nano() - self._started_unix_nano) / NANOS_PER_SECOND,
        )

    async def _page_of(self, query: Query) -> tuple[list[RolloutState], int]:
        rows = (await self._ask(sql.page_and_count_sql(query))).dicts()
        if rows:
            return [state_of_row(row) for row in rows], int(rows[0]["total"])
        # A page beyond the last has no row that could tell.
        total = 0 if query.offset == 0 and query.limit != 0 else int((await self._ask(sql.count_sql(query))).scalar())
        return [], total

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
        ends = Ends({rollout_id: self._follower.expect_terminal(rollout_id) for rollout_id in asked}, needed)
        # What the follower has passed already it will not tell again: the view must know of it.
        asking = asyncio.create_task(self._states_of(asked, self._follower.read_up_to()))
        patience_s = None if timeout is None else max(timeout, self._settings.publish_timeout_s)
        either: list[asyncio.Future[Any]] = [asking, ends.enough]
        try:
            await asyncio.wait(either, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
            if not ends.enough.done():  # else nobody needs to know what was over before
                states = _answered(asking)
                ends.add({rollout_id: state for rollout_id, state in states.items() if state.status.is_terminal})
                ends.forget(set(asked) - states.keys())
                await ends.within(None if timeout is None else max(0.0, until_s - time.monotonic()))
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            ends.close()
        return [ends.ended[rollout_id] for rollout_id in wanted if rollout_id in ends.ended]

    async def _state_of(self, rollout_id: str) -> RolloutState | None:
        return (await self._states_of([rollout_id])).get(rollout_id)

    async def _states_of(
        self, rollout_ids: Sequence[str], at_least: dict[int, int] | None = None
    ) -> dict[str, RolloutState]:
        answer = await self._ask(sql.states_sql(rollout_ids), at_least)
        return {row["rollout_id"]: state_of_row(row) for row in answer.dicts()}

    async def _spans_of(self, rollout_id: str) -> list[Span]:
        return [span_of_row(row) for row in (await self._ask(sql.spans_sql(rollout_id))).dicts()]

    async def _all_resources(self) -> list[ResourcesRecord]:
        return await asyncio.get_running_loop().run_in_executor(self._waiting, self._follower.resources.all)

    async def _all_workers(self) -> list[WorkerHeartbeat]:
        return self._follower.workers.all()

    def positions(self) -> LogPositions:
        latest = self._follower.resources.latest_offset()
        resources = {0: latest} if latest >= 0 else {}
        rollouts, spans = self._follower.answered_at(), self._span_writer.last()
        told = {ROLLOUTS.name: rollouts, SPANS.name: spans, RESOURCES.name: resources}
        return LogPositions(self._log_id, told)

    def see(self, positions: LogPositions) -> None:
        if positions.log != self._log_id:
            return
        self._follower.answered(dict(positions.offsets.get(ROLLOUTS.name, {})))
        self._span_writer.seen(positions.offsets.get(SPANS.name, {}))
        for offset in positions.offsets.get(RESOURCES.name, {}).values():
            self._follower.resources.seen(offset)

    async def _ask(self, statement: str, rollouts_at_least: dict[int, int] | None = None) -> QueryResult:
        """Ask the view, once it reflects what this store knows of.

        Raises:
            ServiceUnavailableError: it does not answer, or does not catch up.
            StoreError: the answer is larger than an answer may be.
        """
        told = self.positions().merged(LogPositions(self._log_id, {ROLLOUTS.name: rollouts_at_least or {}})).offsets
        wanted = {topic: told[topic] for topic in (ROLLOUTS.name, SPANS.name)}

        def ask() -> QueryResult:  # the first loads the HTTP client: 0.1 s, in this thread too
            return self._view_client().query(statement, wanted, wait_s=self._settings.publish_timeout_s)

        answer = await asyncio.get_running_loop().run_in_executor(self._waiting, ask)
        if answer.truncated:
            raise StoreError(f"the answer has more than {len(answer.rows):,} rows; ask for pages, by limit and offset")
        return answer


def _answered(asking: asyncio.Task[dict[str, RolloutState]]) -> dict[str, RolloutState]:
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
