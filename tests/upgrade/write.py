"""``python -m tests.upgrade.write NAME…``: write these records, as whichever version of Lightstream is on the path."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing

from lightstream.runtime.kafka import KafkaPublisher, run_headers
from lightstream.runtime.settings import Settings
from lightstream.schemas.examples import example_of
from lightstream.schemas.packing import pack_int32
from lightstream.schemas.records import RolloutEvent, RolloutMode, SpanRecord, Trajectory
from lightstream.schemas.topics import ROLLOUT_EVENTS, SPANS, TRAJECTORIES
from tests.stream_processors.worker.harness import ended, enqueued, span, started

PROMPT_TOKENS = 150_000
"""Two such calls are a trajectory that fits into no record of the test's, and one is none."""


def _call(rollout_id: str, number: str) -> SpanRecord:
    call = span(rollout_id, int(number))
    assert call.llm_call is not None
    prompt = pack_int32(list(range(PROMPT_TOKENS)))
    return call.model_copy(update={"llm_call": call.llm_call.model_copy(update={"prompt_token_ids": prompt})})


def _trajectory(rollout_id: str) -> Trajectory:
    spec = {
        "run_id": "run",
        "rollout_id": rollout_id,
        "group_id": None,
        "group_size": 1,
        "mode": RolloutMode.TRAIN,
        "final": True,
    }
    return example_of(Trajectory).model_copy(update=spec | {"payload_url": ""})


EVENTS: dict[str, Callable[[str], RolloutEvent]] = {"enqueued": enqueued, "started": started, "ended": ended}


def write(settings: Settings, *names: str) -> None:
    """Write the records, one after the other: ``<rollout>:enqueued``, ``:started``, ``:ended``, ``:<number>``
    for a call, or ``:trajectory``."""
    with closing(KafkaPublisher(settings)) as publisher:
        for name in names:
            rollout_id, what = name.split(":")
            if what in EVENTS:
                publisher.publish(ROLLOUT_EVENTS, rollout_id, EVENTS[what](rollout_id)).result(300)
            elif what == "trajectory":
                headers = run_headers("run")
                publisher.publish(TRAJECTORIES, rollout_id, _trajectory(rollout_id), headers=headers).result(300)
            else:
                publisher.publish(SPANS, rollout_id, _call(rollout_id, what)).result(300)


if __name__ == "__main__":
    write(Settings.load(), *sys.argv[1:])
