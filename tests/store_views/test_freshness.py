"""How soon a view shows what was written, what that costs, and that it says where it no longer does."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.testclient import TestClient

from lightstream.runtime.kafka import KafkaPublisher, TopicTail
from lightstream.runtime.settings import Settings
from lightstream.schemas.topics import SPANS
from lightstream.store_views.materialiser import Positions, ViewDatabase
from lightstream.store_views.materialiser import materialiser as module
from lightstream.store_views.materialiser.materialiser import (
    INTERVAL_S,
    WATCHED_SHARE_MAX,
    transaction_interval_s,
)
from lightstream.store_views.server import admission, create_app
from tests.store_views.call_gate import CallGate
from tests.store_views.test_materialiser import WAIT_S, catch_up, following, reflect
from tests.stream_processors.assembly.build import proxy_span
from tests.support.waiting import eventually

FOREVER_S = 600.0


@pytest.fixture
def publisher(settings: Settings) -> Generator[KafkaPublisher]:
    kafka = KafkaPublisher(settings)
    yield kafka
    kafka.close()


@contextmanager
def closed(gate: CallGate) -> Generator[None]:
    """Hold calls within the block."""
    gate.close()
    try:
        yield
    finally:
        gate.open()


@pytest.mark.parametrize("cost_s", [0.0, 0.001, 0.008, 0.02, 0.1, 0.2])
def test_transactions_that_somebody_watches_cost_at_most_their_share(cost_s: float) -> None:
    interval_s = transaction_interval_s(cost_s, is_watched=True)
    assert cost_s <= WATCHED_SHARE_MAX * interval_s * 1.000001
    assert interval_s <= transaction_interval_s(cost_s, is_watched=False) == INTERVAL_S


def test_costly_transactions_are_no_rarer_where_somebody_watches() -> None:
    assert transaction_interval_s(5.0, is_watched=True) == INTERVAL_S


def counted(http: TestClient) -> int:
    return int(http.post("/v1/sql", json={"sql": "SELECT count(*) FROM spans_raw"}).json()["rows"][0][0])


def test_a_plain_read_is_answered_though_what_was_fetched_is_never_shown(
    settings: Settings, publisher: KafkaPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = CallGate(monkeypatch, ViewDatabase, "append", is_open=True)
    with following(settings) as view, TestClient(create_app(view)) as http:
        catch_up(view)
        with closed(gate):
            publisher.publish(SPANS, "key", proxy_span(1)).result(WAIT_S)
            eventually(lambda: gate.calls_waiting)
            assert view.positions.missing(view.fetched())
            assert counted(http) == 0


def test_a_plain_read_waits_for_what_was_fetched_when_it_came_and_for_nothing_later(
    settings: Settings, publisher: KafkaPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = CallGate(monkeypatch, ViewDatabase, "append", is_open=True)
    waits = threading.Event()
    wait_for = Positions.wait_for

    def noted(*arguments: Any, **options: Any) -> Any:
        waits.set()
        return wait_for(*arguments, **options)

    monkeypatch.setattr(admission, "FRESH_WAIT_S", FOREVER_S)
    with following(settings) as view, TestClient(create_app(view)) as http:
        catch_up(view)
        with closed(gate):
            publisher.publish(SPANS, "key", proxy_span(1)).result(WAIT_S)
            eventually(lambda: gate.calls_waiting)
            monkeypatch.setattr(Positions, "wait_for", noted)
            found: list[int] = []
            reader = threading.Thread(target=lambda: found.append(counted(http)))
            reader.start()
            assert waits.wait(WAIT_S)
            seen = view.fetched()
            publisher.publish(SPANS, "key", proxy_span(2)).result(WAIT_S)
            eventually(lambda: view.fetched() != seen)
            gate.allow_one()
            reader.join(FOREVER_S / 2)
            assert found == [1]


@pytest.mark.parametrize(
    ("part", "method", "said"),
    [(ViewDatabase, "append", "the view's writer is stuck"), (TopicTail, "poll", "the view's reader is stuck")],
)
def test_a_thread_that_is_stuck_makes_the_view_unready(
    part: type,
    method: str,
    said: str,
    settings: Settings,
    publisher: KafkaPublisher,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = CallGate(monkeypatch, part, method, is_open=True)
    with following(settings) as view:
        catch_up(view)
        assert view.unready() is None
        monkeypatch.setattr(module, "STUCK_S", 1.0)
        with closed(gate):
            written = publisher.publish(SPANS, "key", proxy_span(1)).result(WAIT_S)
            eventually(lambda: (view.unready() or "").startswith(said))
        eventually(lambda: view.unready() is None)
        reflect(view, written)
