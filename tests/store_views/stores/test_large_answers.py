"""What is larger than an answer of the view may be is asked for in parts, and what nobody needs is not asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import StoreError
from lightstream.schemas.records import (
    EventKind,
    RolloutSpec,
    RolloutState,
    RolloutStatus,
    SpanRecord,
    Verdict,
    VerdictOutcome,
)
from lightstream.store_views.client import QueryResult
from lightstream.store_views.server import QueryLimits
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.store_views.stores.kafka import view as view_module
from lightstream.store_views.stores.kafka.query_sql import Parameters
from tests.store_views.exports.test_exports import asks
from tests.store_views.log_file import LogFile

T = TypeVar("T")

INPUT = '"' + "x" * 50_000 + '"'
FEW_ROWS = QueryLimits(rows_max=3)
FEW_BYTES = QueryLimits(bytes_max=130_000)
"""Two inputs' worth."""


class View:
    """Answers as the view does, within ``limits``; ``meanwhile`` is done after the first answer."""

    def __init__(self, log: LogFile, limits: QueryLimits) -> None:
        self.asked: list[str] = []
        self.rows = 0
        self.meanwhile: Callable[[], None] | None = None
        self._ask = asks(log, limits)

    async def query(self, statement: str, *_: Any, params: Parameters | None = None, **__: Any) -> QueryResult:
        self.asked.append(statement)
        told: dict[str, Any] = {**self._ask(statement, params)}
        answer = QueryResult(**told)
        self.rows += len(answer.rows)
        if self.meanwhile is not None:
            self.meanwhile()
            self.meanwhile = None
        return answer

    async def close(self) -> None:
        pass


def state(number: int, status: RolloutStatus = RolloutStatus.SUCCEEDED, source_offset: int = 1) -> RolloutState:
    return RolloutState(
        rollout=RolloutSpec(rollout_id=f"r{number}", enqueued_unix_nano=number, input_json=INPUT),
        status=status,
        updated_unix_nano=number,
        ended_unix_nano=number if status.is_terminal else None,
        source_offset=source_offset,
        verdict=Verdict(event_id="e", kind=EventKind.ENQUEUED, outcome=VerdictOutcome.APPLIED),
    )


def span(number: int) -> SpanRecord:
    return SpanRecord(
        rollout_id="r0",
        attempt_id="a",
        sequence_id=9 - number,
        trace_id="t",
        span_id=f"{number}",
        name="work",
        attributes={"text": "x" * 50_000},
    )


def told(settings: Settings, view: View, call: Callable[[KafkaLightningStore], Awaitable[T]]) -> T:
    """What a store says that asks this view. No broker is there."""

    async def scenario() -> T:
        store = KafkaLightningStore(settings)
        store.store._log._view._client = view  # type: ignore[attr-defined]  # pyright: ignore[reportPrivateUsage,reportAttributeAccessIssue]  # no server is needed
        try:
            return await call(store)
        finally:
            await store.close()

    return asyncio.run(scenario())


@pytest.fixture(params=[FEW_ROWS, FEW_BYTES], ids=["rows", "bytes"])
def view(request: pytest.FixtureRequest, log: LogFile) -> View:
    return View(log, request.param)


@pytest.fixture
def offline() -> Settings:
    return Settings.load(kafka_bootstrap_servers="127.0.0.1:1")


@pytest.mark.parametrize("limit", [-1, 8])
def test_query_rollouts_of_more_than_an_answer_holds(offline: Settings, log: LogFile, view: View, limit: int) -> None:
    log.write(*map(state, range(9)), state(9, RolloutStatus.RUNNING))
    page = told(
        offline,
        view,
        lambda store: store.query_rollouts(
            status_in=["succeeded"], sort_by="start_time", sort_order="desc", limit=limit
        ),
    )
    expected = [f"r{number}" for number in reversed(range(9))]
    assert [rollout.rollout_id for rollout in page] == expected[: None if limit == -1 else limit]
    assert page.total == 9


def test_a_rollout_that_stops_matching_while_parts_are_asked_for_is_left_out(
    offline: Settings, log: LogFile, view: View
) -> None:
    log.write(*map(state, range(6)))
    view.meanwhile = lambda: log.write(state(3, RolloutStatus.RUNNING, 2))
    page = told(offline, view, lambda store: store.query_rollouts(status_in=["succeeded"]))
    assert [rollout.rollout_id for rollout in page] == [f"r{number}" for number in (0, 1, 2, 4, 5)]


def test_query_spans_of_more_than_an_answer_holds(offline: Settings, log: LogFile, view: View) -> None:
    log.write(*map(span, range(9)), span(0))
    spans = told(offline, view, lambda store: store.query_spans("r0"))
    assert [one.span_id for one in spans] == [f"{number}" for number in reversed(range(9))]
    assert spans.total == 9


def test_query_spans_asks_for_the_page_alone(offline: Settings, log: LogFile, view: View) -> None:
    log.write(*map(span, range(9)))
    page = told(offline, view, lambda store: store.query_spans("r0", limit=1, offset=2))
    assert ([one.span_id for one in page], page.total) == (["6"], 9)
    assert view.rows == 1
    beyond = told(offline, view, lambda store: store.query_spans("r0", limit=1, offset=20))
    assert ([*beyond], beyond.total) == ([], 9)


def test_a_wait_asks_for_no_inputs_but_of_those_that_are_over(offline: Settings, log: LogFile) -> None:
    """All their inputs together would be more than an answer holds; one that goes on has none that may be told."""
    view = View(log, FEW_BYTES)
    log.write(*(state(number, RolloutStatus.RUNNING) for number in range(4)), *map(state, range(4, 8)))
    ids = [f"r{number}" for number in range(8)]
    ended = told(offline, view, lambda store: store.wait_for_rollouts(rollout_ids=[*ids, "nobody"], timeout=0.1))
    assert [rollout.rollout_id for rollout in ended] == ids[4:]
    whole = [statement for statement in view.asked if statement.startswith("SELECT *")]
    assert whole
    assert not any("'r0'" in statement for statement in whole)


def test_questions_about_attempts_ask_for_no_inputs(offline: Settings, log: LogFile) -> None:
    view = View(log, QueryLimits(bytes_max=10_000))
    log.write(*map(state, range(4)))
    assert told(offline, view, lambda store: store.query_attempts("r0")).total == 0
    assert told(offline, view, lambda store: store.get_latest_attempt("r0")) is None
    assert told(offline, view, lambda store: store.query_spans("r0", "latest")).total == 0
    assert not any(statement.startswith("SELECT *") for statement in view.asked)


def test_many_ids_are_asked_for_some_hundred_at_a_time(
    offline: Settings, log: LogFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_module, "CHARACTERS_PER_QUESTION_MAX", 7)
    view = View(log, QueryLimits())
    log.write(*map(state, range(9)))
    ids = [f"r{number}" for number in range(9)]
    ended = told(offline, view, lambda store: store.wait_for_rollouts(rollout_ids=ids, timeout=60))
    assert [rollout.rollout_id for rollout in ended] == ids
    assert max(statement.count("$p") for statement in view.asked) == 3


def test_a_row_larger_than_an_answer_is_said_to_be_so(offline: Settings, log: LogFile) -> None:
    log.write(state(0))
    with pytest.raises(StoreError, match="the answer for 'r0' is larger than an answer of the view may be"):
        told(offline, View(log, QueryLimits(bytes_max=10_000)), lambda store: store.query_rollouts())
