"""Parts of the worker that need no Kafka."""

from __future__ import annotations

from pathlib import Path

import faust
import pytest
from pydantic import SecretStr

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.examples import example_of
from lightstream.schemas.records import (
    AttemptClosed,
    AttemptOpened,
    Drop,
    DropReason,
    EventKind,
    SpanRecord,
    Trajectory,
)
from lightstream.stream_processors.core.lifecycle import Limits
from lightstream.stream_processors.worker import large_trajectories
from lightstream.stream_processors.worker.app import group_member, make_app
from lightstream.stream_processors.worker.assembler_handler import SpanHeartbeats
from lightstream.stream_processors.worker.inbox import BATCH_RECORDS_MAX, Budget, Inbox, LogRecord
from lightstream.stream_processors.worker.large_trajectories import without_triplets

SECOND = 1_000_000_000


def records(count: int, size: int = 1) -> list[LogRecord]:
    return [LogRecord("t", 0, offset, None, b"x" * size) for offset in range(count)]


async def test_an_inbox_gives_everything_in_order_in_bounded_batches() -> None:
    inbox = Inbox(Budget(10_000, 10_000))
    inbox.put(records(BATCH_RECORDS_MAX + 5))
    first, second = await inbox.take(), await inbox.take()
    assert [r.offset for r in first + second] == list(range(BATCH_RECORDS_MAX + 5))
    assert len(first) == BATCH_RECORDS_MAX
    inbox.close()
    assert await inbox.take() == []


@pytest.mark.parametrize(("records_max", "bytes_max"), [(5, 10**9), (10**9, 500)])
async def test_a_full_budget_stops_fetching_until_there_is_room(records_max: int, bytes_max: int) -> None:
    budget = Budget(records_max, bytes_max)
    inbox, other = Inbox(budget), Inbox(budget)
    assert await budget.wait_for_room(0.0)
    inbox.put(records(3, size=100))
    other.put(records(3, size=100))
    assert not await budget.wait_for_room(0.01)
    await inbox.take()
    assert await budget.wait_for_room(0.01)
    inbox.put(records(3, size=100))
    inbox.close()
    assert await budget.wait_for_room(0.01), "what is dropped takes no room"


def test_spans_are_passed_on_as_signs_of_life_but_seldom() -> None:
    heartbeats = SpanHeartbeats(Limits(unresponsive_s=30.0))
    opened = example_of(AttemptOpened)
    span = example_of(SpanRecord).model_copy(
        update={"rollout_id": opened.rollout.rollout_id, "attempt_id": opened.attempt_id}
    )
    interval = Limits(unresponsive_s=30.0).unresponsive_nanos(opened.rollout.config) // 3
    assert heartbeats.on_record(span, 0, 0) is None, "the attempt is not open"
    assert heartbeats.on_record(opened, 1, 0) is None
    event = heartbeats.on_record(span, 2, 5)
    assert event is not None, "the first span tells that the attempt runs"
    assert heartbeats.on_record(span, 2, interval + 4) is None
    event = heartbeats.on_record(span, 3, interval + 5)
    assert event is not None
    assert (event.kind, event.rollout_id, event.attempt_id) == (EventKind.HEARTBEAT, span.rollout_id, span.attempt_id)
    assert heartbeats.on_record(span, 4, interval + 6) is None
    closed = example_of(AttemptClosed).model_copy(
        update={"rollout_id": opened.rollout.rollout_id, "attempt_id": opened.attempt_id}
    )
    assert heartbeats.on_record(closed, 5, interval) is None
    assert heartbeats.on_record(span, 6, 10 * interval) is None


def test_a_trajectory_too_large_for_a_record_tells_of_every_call() -> None:
    trajectory = example_of(Trajectory)
    assert trajectory.triplets
    small = without_triplets(trajectory, "a record of 9 bytes is over the limit")
    assert small.triplets == []
    dropped = [(d.span_id, d.choice_index, d.source_offset) for d in small.drops if d.reason == "too_large"]
    assert dropped == [(t.span_id, t.choice_index, t.source_offset) for t in trajectory.triplets]
    assert sum(drop.is_llm_call for drop in small.drops) == trajectory.call_count


def test_details_are_left_out_before_a_trajectory_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_trajectories, "DETAILS_CHARS_MAX", 25)
    drop = Drop(span_id="1" * 16, reason=DropReason.CALL_FAILED, detail="ten chars.")
    trajectory = example_of(Trajectory).model_copy(update={"drops": [drop] * 3, "triplets": []})
    small = without_triplets(trajectory, "too large")
    assert [(d.reason, d.detail) for d in small.drops] == [(drop.reason, drop.detail)] * 2 + [(drop.reason, "")]


def test_of_two_workers_with_one_data_folder_one_has_the_name(tmp_path: Path) -> None:
    settings = Settings.load(data_dir=tmp_path)
    with group_member(settings) as first:
        assert first
        with group_member(settings) as second:
            assert second is None
    with group_member(settings) as third:
        assert third == first


def app_of(tmp_path: Path, **security: object) -> faust.App:
    return make_app(Settings.load(data_dir=tmp_path, kafka_bootstrap_servers="a:1,b:2", **security))


def test_the_app_takes_every_server_and_the_security_settings(tmp_path: Path) -> None:
    plain = app_of(tmp_path)
    assert [(url.host, url.port) for url in plain.conf.broker] == [("a", 1), ("b", 2)]
    assert plain.conf.broker_credentials is None

    scram = app_of(
        tmp_path,
        kafka_security_protocol="SASL_SSL",
        kafka_sasl_mechanism="SCRAM-SHA-512",
        kafka_sasl_username="user",
        kafka_sasl_password=SecretStr("secret"),
    ).conf.broker_credentials
    assert isinstance(scram, faust.SASLCredentials)
    assert (scram.protocol.value, scram.mechanism.value) == ("SASL_SSL", "SCRAM-SHA-512")
    assert (scram.username, scram.password) == ("user", "secret")

    tls = app_of(tmp_path, kafka_security_protocol="SSL").conf.broker_credentials
    assert isinstance(tls, faust.SSLCredentials)


def test_sasl_without_a_mechanism_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="LIGHTSTREAM_KAFKA_SASL_MECHANISM"):
        app_of(tmp_path, kafka_security_protocol="SASL_PLAINTEXT")
