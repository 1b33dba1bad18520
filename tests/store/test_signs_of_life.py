"""An attempt of which something is heard again and again outlives one that is silent."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lightstream.runtime.clock import NANOS_PER_SECOND, ManualClock
from lightstream.runtime.settings import Settings
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.records import RolloutEvent
from lightstream.schemas.topics import ROLLOUT_EVENTS
from lightstream.schemas.types import RolloutConfig
from lightstream.store_views.stores import InMemoryLightningStore
from lightstream.store_views.stores.http import LightningStoreClient
from tests.store_views.stores_http.support import local_settings, served
from tests.support.log_tail import LogTail

from .support import begun, reached, span_of

STEP_S, SILENCE_S = 6.0, 10.0
STEPS = 4
ROUNDING_S = 0.01
"""The log's times are whole milliseconds."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "http"])
def by_hand(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> Iterator[LightningStore]:
    """A store whose time is moved by hand; over HTTP it is the server's."""
    behind = InMemoryLightningStore(clock=clock)
    asyncio.run(behind.start())
    if request.param == "memory":
        yield behind
    else:
        with served(behind, local_settings(tmp_path)) as server:
            client = LightningStoreClient(server.endpoint)
            asyncio.run(client.start())
            yield client
            asyncio.run(client.close())
    asyncio.run(behind.close())


async def test_without_a_limit_no_sign_of_life_is_too_long_ago(by_hand: LightningStore, clock: ManualClock) -> None:
    config = RolloutConfig(timeout_seconds=math.inf, unresponsive_seconds=math.inf)
    made, limited = (
        await begun(by_hand, config=config),
        await begun(by_hand, config=RolloutConfig(unresponsive_seconds=SILENCE_S)),
    )
    for attempt in (made, limited):
        await by_hand.update_attempt(attempt.rollout_id, attempt.attempt.attempt_id, last_heartbeat_time=5.0)
    clock.advance(STEP_S)
    await reached(by_hand, limited.rollout_id, "failed")
    found = await by_hand.get_rollout_by_id(made.rollout_id)
    assert found is not None
    assert found.status in ("preparing", "running")


async def test_spans_keep_an_attempt_alive(by_hand: LightningStore, clock: ManualClock) -> None:
    """For as long as they come: each time less than the limit passes, and all in all much more."""
    config = RolloutConfig(unresponsive_seconds=SILENCE_S)
    made, silent = await begun(by_hand, config=config), await begun(by_hand, config=config)
    for number in range(1, STEPS + 1):
        clock.advance(STEP_S)
        await by_hand.add_span(span_of(made, sequence_id=number))
    await reached(by_hand, silent.rollout_id, "failed")
    rollout = await by_hand.get_rollout_by_id(made.rollout_id)
    assert rollout is not None
    assert rollout.status == "running"
    clock.advance(SILENCE_S + 1)
    await reached(by_hand, made.rollout_id, "failed")


async def test_spans_in_the_log_keep_an_attempt_alive(kafka_store: LightningStore, kafka_settings: Settings) -> None:
    """Where a slow machine leaves it without spans for too long, which the log shows, it is tried with more time."""
    for silence_s in (2.0**n for n in itertools.count()):
        config = RolloutConfig(unresponsive_seconds=silence_s)
        made, silent = await begun(kafka_store, config=config), await begun(kafka_store, config=config)
        for number in itertools.count(1):
            await kafka_store.add_span(span_of(made, sequence_id=number))
            other = await kafka_store.get_rollout_by_id(silent.rollout_id)
            if other is not None and other.status == "failed":
                break
            await asyncio.sleep(0.02)
        rollout = await kafka_store.get_rollout_by_id(made.rollout_id)
        assert rollout is not None
        if rollout.status == "running":
            return
        assert _longest_silence_s(kafka_settings, made.rollout_id) > silence_s - ROUNDING_S, "given up, though heard of"


def _longest_silence_s(settings: Settings, rollout_id: str) -> float:
    """Between two events about a rollout, by the log's times."""
    with closing(LogTail(settings, ROLLOUT_EVENTS)) as events:
        times = [
            logged.logged_unix_nano
            for logged in events.read_to_end()
            if isinstance(logged.record, RolloutEvent) and logged.record.rollout_id == rollout_id
        ]
    return max(later - earlier for earlier, later in itertools.pairwise(times)) / NANOS_PER_SECOND
