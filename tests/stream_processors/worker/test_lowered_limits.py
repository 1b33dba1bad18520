"""A worker whose topics take less than they did: it goes on, and what does not fit goes out smaller."""

from __future__ import annotations

import asyncio
import random
from contextlib import closing
from typing import Any

import pytest

from lightstream.runtime.clock import SystemClock
from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import (
    AttemptClosed,
    AttemptOpened,
    DeadLetter,
    DeadLetterReason,
    DropReason,
    RolloutState,
    SpanRecord,
    Trajectory,
)
from lightstream.schemas.topics import DEAD_LETTERS, ROLLOUT_EVENTS, ROLLOUTS, SPANS, TRAJECTORIES
from lightstream.stream_processors.worker.assembler_handler import AssemblerHandler
from lightstream.stream_processors.worker.context import WorkerContext
from lightstream.stream_processors.worker.inbox import LogRecord
from lightstream.stream_processors.worker.lifecycle_handler import LifecycleHandler
from tests.producers.support import read_records
from tests.stream_processors.assembly.build import closed, opened, proxy_span
from tests.support.topic_limits import limit_topic

from .harness import CODEC, enqueued

LOW = 20_000
TOKENS = 20_000


def _numbers(seed: int) -> list[int]:
    """Ids that compression does not make much smaller."""
    rng = random.Random(seed)
    return [rng.randrange(150_000) for _ in range(TOKENS)]


def _trajectories(settings: Settings) -> dict[str, Trajectory]:
    found = [record for _, record in read_records(settings, TRAJECTORIES) if isinstance(record, Trajectory)]
    assert len({trajectory.rollout_id for trajectory in found}) == len(found), "each goes out once"
    return {trajectory.rollout_id: trajectory for trajectory in found}


@pytest.mark.parametrize("has_folder", [False, True])
def test_a_trajectory_that_no_longer_fits_goes_out_smaller_and_others_are_whole(
    settings: Settings, has_folder: bool, tmp_path: Any
) -> None:
    settings = settings.model_copy(update={"large_records_dir": tmp_path / "large" if has_folder else None})
    limit_topic(settings, TRAJECTORIES, LOW)
    records: list[SpanRecord | AttemptOpened | AttemptClosed] = [
        opened("large"),
        proxy_span(1, _numbers(1), [4, 5], rollout_id="large"),
        closed("large"),
        opened("small"),
        proxy_span(2, rollout_id="small"),
        closed("small"),
    ]

    async def scenario(publisher: KafkaPublisher) -> None:
        handler = AssemblerHandler(WorkerContext(settings, publisher, CODEC, SystemClock(), "tests"), 0)
        handler.recover()
        batch = [LogRecord(SPANS.name, 0, at, b"r", CODEC.encode(record), 1000) for at, record in enumerate(records)]
        assert await handler.handle(batch) == len(records)
        handler.close()

    with closing(KafkaPublisher(settings, linger_ms=0)) as publisher:
        asyncio.run(scenario(publisher))
    found = _trajectories(settings)
    assert len(found["small"].triplets) == 1
    large = found["large"]
    if has_folder:
        assert large.payload_url
    else:
        assert [(drop.reason, "over the limit" in drop.detail) for drop in large.drops] == [
            (DropReason.TOO_LARGE, True)
        ]


def test_a_state_that_no_longer_fits_is_a_dead_letter_and_the_next_event_is_folded(settings: Settings) -> None:
    limit_topic(settings, ROLLOUTS, LOW)
    noise = "".join(random.Random(1).choices("0123456789abcdefghijklmnopqrstuvwxyz", k=4 * LOW))
    large = enqueued("large")
    assert large.rollout is not None
    spec = large.rollout.model_copy(update={"input_json": f'"{noise}"'})
    events = [large.model_copy(update={"rollout": spec}), enqueued("small")]

    async def scenario(publisher: KafkaPublisher) -> None:
        handler = LifecycleHandler(WorkerContext(settings, publisher, CODEC, SystemClock(), "tests"), 0)
        handler.recover()
        batch = [
            LogRecord(ROLLOUT_EVENTS.name, 0, at, event.rollout_id.encode(), CODEC.encode(event), 1000)
            for at, event in enumerate(events)
        ]
        assert await handler.handle(batch) == len(events)
        handler.close()

    with closing(KafkaPublisher(settings, linger_ms=0)) as publisher:
        asyncio.run(scenario(publisher))
    states = [record for _, record in read_records(settings, ROLLOUTS) if isinstance(record, RolloutState)]
    assert [state.rollout.rollout_id for state in states] == ["small"]
    (letter,) = [record for _, record in read_records(settings, DEAD_LETTERS) if isinstance(record, DeadLetter)]
    assert (letter.reason, letter.origin_topic, letter.key) == (DeadLetterReason.TOO_LARGE, "rollouts", b"large")
