"""A store whose clock jumps: times are what the clock said, order is the log's, and nothing is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lightstream.runtime.clock import SystemClock
from lightstream.runtime.settings import Settings
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import LLM, AttemptedRollout, RolloutConfig
from lightstream.store_views.stores import InMemoryLightningStore, KafkaLightningStore
from lightstream.store_views.stores.http import LightningStoreClient
from tests.store_views.stores_http.support import local_settings, served

from .conftest import BACK_ENDS
from .support import cancel_what_is_left, reached, span_of, taken

HOUR_S = 3600.0
FAR_S = 30 * 24 * HOUR_S
CONFIG = RolloutConfig(timeout_seconds=FAR_S, unresponsive_seconds=FAR_S)
"""Deadlines that no jump reaches: an attempt over its deadline, by whichever clock, is rightly over."""

RETRIED = CONFIG.model_copy(update={"max_attempts": 2, "retry_condition": ["failed"]})


class JumpingClock(SystemClock):
    """The machine's clock, and an error."""

    error_s = 0.0

    def now_unix_nano(self) -> int:
        return super().now_unix_nano() + int(self.error_s * 1e9)


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock()


@pytest.fixture(params=BACK_ENDS)
def jumping(request: pytest.FixtureRequest, clock: JumpingClock, tmp_path: Path) -> Iterator[LightningStore]:
    """A store with that clock; over HTTP it is the server's."""
    if request.param == "kafka":
        settings: Settings = request.getfixturevalue("kafka_settings")
        on_kafka = KafkaLightningStore(settings, clock=clock)
        asyncio.run(on_kafka.start())
        yield on_kafka
        asyncio.run(cancel_what_is_left(on_kafka))
        asyncio.run(on_kafka.close())
        return
    behind = InMemoryLightningStore(clock=clock)
    if request.param == "memory":
        yield behind
    else:
        with served(behind, local_settings(tmp_path)) as server:
            client = LightningStoreClient(server.endpoint)
            yield client
            asyncio.run(client.close())
    asyncio.run(behind.close())


@pytest.mark.parametrize("jumps_s", [[HOUR_S, -HOUR_S], [-2 * HOUR_S, HOUR_S, -HOUR_S], [-FAR_S / 3, FAR_S / 3]])
async def test_a_clock_that_jumps(jumping: LightningStore, clock: JumpingClock, jumps_s: list[float]) -> None:
    async def jump(to_s: float) -> None:
        clock.error_s = to_s

    for error_s in jumps_s:
        await jump(0.0)
        made = await jumping.enqueue_rollout({"x": 1}, config=CONFIG)
        first = await jumping.add_resources({"llm": LLM(endpoint="e", model="1")})
        await jump(error_s)
        latest = await jumping.add_resources({"llm": LLM(endpoint="e", model="2")})
        assert await jumping.get_latest_resources() == latest
        assert latest.update_time == pytest.approx(first.update_time + error_s, abs=120)
        await jump(0.0)  # a request for work is void a minute after it was made, by the clocks of both ends
        rollout = await taken(jumping, "w")
        await jump(error_s)
        assert rollout.rollout_id == made.rollout_id
        number = await jumping.get_next_span_sequence_id(rollout.rollout_id, rollout.attempt.attempt_id)
        await jumping.add_span(span_of(rollout, sequence_id=number))
        await jump(-error_s)
        await jumping.update_worker("w", {"load": 1})
        found = await jumping.get_rollout_by_id(made.rollout_id)
        assert found is not None
        assert found.status == "running"
        waiting = asyncio.ensure_future(jumping.wait_for_rollouts(rollout_ids=[made.rollout_id], timeout=60))
        await jumping.update_attempt(rollout.rollout_id, rollout.attempt.attempt_id, "succeeded")
        assert [over.status for over in await waiting] == ["succeeded"]
        again = await jumping.update_resources(latest.resources_id, {})
        assert (again.version, again.create_time) == (2, latest.create_time)
        assert await jumping.get_latest_resources() == again


@pytest.mark.parametrize("steps_s", [[0.0, -HOUR_S, HOUR_S, -2 * HOUR_S], [HOUR_S, 0.0, -HOUR_S]])
async def test_what_was_enqueued_first_is_handed_out_first(
    jumping: LightningStore, clock: JumpingClock, steps_s: list[float]
) -> None:
    made: list[str] = []
    for number, error_s in enumerate(steps_s * 2):
        clock.error_s = error_s
        made.append((await jumping.enqueue_rollout(number, config=RETRIED)).rollout_id)
    clock.error_s = 0.0
    assert [(await taken(jumping)).rollout_id for _ in made] == made
    for rollout_id in reversed(made):
        await jumping.update_attempt(rollout_id, "latest", "failed")
    await jumping.enqueue_rollout("a first attempt", config=CONFIG)
    assert [(await taken(jumping)).rollout_id for _ in made] == made


async def test_a_heartbeat_from_the_future_or_long_ago(store: LightningStore) -> None:
    """The rollout does not say how long it may be silent: the default is about what the store hears itself."""
    await store.enqueue_rollout(1, config=RolloutConfig(timeout_seconds=FAR_S))
    rollout = await taken(store)
    for time_s in (0.0, -1.0, 4e9):
        attempt = await store.update_attempt(rollout.rollout_id, "latest", last_heartbeat_time=time_s)
        assert (attempt.last_heartbeat_time, attempt.status) == (time_s, "preparing")
    assert (await store.update_attempt(rollout.rollout_id, "latest", "succeeded")).status == "succeeded"


async def test_a_heartbeat_of_before_makes_an_attempt_unresponsive(store: LightningStore) -> None:
    config = RolloutConfig(unresponsive_seconds=HOUR_S, max_attempts=2, retry_condition=["unresponsive"])
    rollout = await store.start_rollout(1, config=config)
    other = await store.start_rollout(2, config=config)
    await store.update_attempt(other.rollout_id, "latest", "running", last_heartbeat_time=time.time() - HOUR_S / 2)
    await store.update_attempt(rollout.rollout_id, "latest", "running", last_heartbeat_time=time.time() - 2 * HOUR_S)
    found = await reached(store, rollout.rollout_id, "requeuing")
    assert isinstance(found, AttemptedRollout)
    assert found.attempt.status == "unresponsive"
    left = await store.get_rollout_by_id(other.rollout_id)
    assert left is not None
    assert left.status == "running"
    await store.update_attempt(rollout.rollout_id, "latest", "running", last_heartbeat_time=time.time() + HOUR_S)
    assert (await reached(store, rollout.rollout_id, "running")).rollout_id == rollout.rollout_id


@pytest.mark.parametrize("error_s", [-HOUR_S, HOUR_S])
async def test_a_client_whose_clock_is_wrong_gets_work_and_all_its_time(
    kafka_settings: Settings, error_s: float
) -> None:
    """Neither its requests nor its attempts are over before their time: the broker's clock counts."""
    clock = JumpingClock()
    clock.error_s = error_s
    store = KafkaLightningStore(kafka_settings, clock=clock)
    await store.start()
    try:
        config = RolloutConfig(timeout_seconds=HOUR_S / 2, unresponsive_seconds=FAR_S)
        made = [await store.enqueue_rollout(number, config=config) for number in range(2)]
        rollouts = [await taken(store, "w"), await taken(store, "w")]
        assert [rollout.rollout_id for rollout in rollouts] == [rollout.rollout_id for rollout in made]
        rollouts.append(await store.start_rollout(3, config=config))
        # What fell due an hour ago is noticed before what falls due later.
        witness = await store.start_rollout(4, config=RolloutConfig(timeout_seconds=0.5))
        (over,) = await store.wait_for_rollouts(rollout_ids=[witness.rollout_id], timeout=60.0)
        assert over.status == "failed"
        for rollout in rollouts:
            ended = await store.update_attempt(rollout.rollout_id, rollout.attempt.attempt_id, "succeeded")
            assert (ended.status, ended.attempt_id) == ("succeeded", rollout.attempt.attempt_id)
    finally:
        await cancel_what_is_left(store)
        await store.close()
