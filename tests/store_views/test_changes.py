"""Fresh answers without asking for an offset, and the stream that tells when to ask again."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.schemas.topics import SPANS
from lightstream.store_views.materialiser import Materialiser, Positions, materialiser
from lightstream.store_views.server import create_app
from lightstream.store_views.server.changes import tables_behind
from tests.store_views.view_process import running_view, start_view, wait_until_ready
from tests.stream_processors.assembly.build import proxy_span
from tests.support.waiting import eventually

WAIT_S = 60.0


def events(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    lines = answer.iter_lines()
    for line in lines:
        if line == "event: change":
            yield json.loads(next(lines).removeprefix("data: "))


def test_a_topic_changes_its_tables_and_every_view_that_reads_them() -> None:
    behind = tables_behind()
    assert {"rollout_states", "rollouts_latest", "rollouts", "why_not_trained"} <= set(behind["rollouts"])
    assert {"spans_raw", "spans", "call_spans", "llm_calls"} <= set(behind["spans"])
    assert "spans" not in behind["workers"]
    assert "task_requests_raw" in behind["rollout-events"]


def test_listeners_are_told_of_each_advance_and_of_the_end() -> None:
    positions, told = Positions(), []
    assert not positions.is_watched
    with positions.listening(lambda: told.append(positions.snapshot())):
        assert positions.is_watched
        positions.advance({("spans", 0): 1})
        positions.advance({("spans", 0): 2})
        positions.close("the end")
    positions.advance({("spans", 0): 3})
    assert told == [{("spans", 0): 1}, {("spans", 0): 2}, {("spans", 0): 2}]
    assert not positions.is_watched
    positions.look()
    assert positions.is_watched


def test_a_patient_waiter_makes_nobody_hurry() -> None:
    positions, wanted = Positions(), {("spans", 0): 1}
    found: list[object] = []
    waiter = threading.Thread(target=lambda: found.append(positions.wait_for(wanted, WAIT_S, urgent=False)))
    waiter.start()
    assert not positions.awaits({}, wanted)
    positions.advance(wanted)
    waiter.join(WAIT_S)
    assert found == [{}]


def test_a_plain_reader_sees_what_came_although_nobody_waits_for_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(materialiser, "INTERVAL_S", 24 * 3600.0)
    publisher, view = KafkaPublisher(settings), Materialiser(settings)
    view.start()
    try:
        with TestClient(create_app(view)) as http:

            def shows(spans: int) -> bool:
                answer = http.post("/v1/sql", json={"sql": "SELECT count(*) FROM spans_raw"})
                return bool(answer.json()["rows"] == [[spans]])

            for number in range(1, 4):
                publisher.publish(SPANS, "key", proxy_span(number)).result(WAIT_S)
                eventually(partial(shows, number), what=f"span {number}")
    finally:
        view.stop()
        publisher.close()


def test_changes_are_told_as_they_come_and_a_view_that_stops_ends_the_stream(settings: Settings) -> None:
    publisher = KafkaPublisher(settings)
    process = start_view(settings)
    url = wait_until_ready(settings, process)
    try:
        with httpx.stream("GET", f"{url}/v1/changes", timeout=WAIT_S) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            told = events(answer)
            assert set(next(told)) == {"tables", "positions", "rebuilding"}
            landed = publisher.publish(SPANS, "key", proxy_span(1)).result(WAIT_S)
            reached = landed.offset + 1
            change = next(
                event for event in told if event["positions"].get("spans", {}).get(str(landed.partition)) == reached
            )
            assert {"spans_raw", "spans"} <= set(change["tables"])
            rows = httpx.post(f"{url}/v1/sql", json={"sql": "SELECT count(*) FROM spans"}, timeout=WAIT_S).json()[
                "rows"
            ]
            assert rows == [[1]], "what it tells of is there"
            process.send_signal(signal.SIGTERM)
            left = list(told)  # it ends
            later = [event["positions"].get("spans", {}) for event in left]  # empty partitions are told with 0
            assert not any(any(offsets.values()) for offsets in later), "nothing was written since"
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.wait()
        publisher.close()


def test_changes_need_the_token(settings: Settings) -> None:
    closed = settings.model_copy(update={"view_token": SecretStr("s3cret")})
    with running_view(closed):
        url = f"{discover(closed, 'view').address}/v1/changes"
        assert httpx.get(url, timeout=WAIT_S).status_code == 401
        with httpx.stream("GET", url, headers={"authorization": "Bearer s3cret"}, timeout=WAIT_S) as answer:
            assert answer.status_code == 200
