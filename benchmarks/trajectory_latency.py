"""From an attempt's end to its trajectory, at a load: for a consumer of ``trajectories``, and for readers of the view.

``python -m benchmarks.trajectory_latency`` prints a table, and with ``--json`` one JSON object. Uses the cluster named
by ``LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS``, or a broker of its own. Topics are new ones, with a random prefix.

One attempt after another is timed, from handing its end to Kafka until a consumer has the trajectory, while another
process keeps up the load (attempts of ten spans, their events and marks not counted). ``waiting`` readers of the view
name the trajectory's place and are answered once the view reflects it; ``plain`` ones ask again and again, and see what
is committed. The view runs only where it is measured. Targets at 1,000 spans/s: p50 20 ms, p99 100 ms.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple

from confluent_kafka import Message

from lightstream.runtime.kafka import KafkaPublisher, Position
from lightstream.runtime.settings import Settings
from lightstream.schemas.topics import ROLLOUT_EVENTS, ROLLOUTS, SPANS, TRAJECTORIES
from lightstream.store_views.client import ViewClient

from .attempts import SPANS_PER_ATTEMPT, events, span
from .cluster import cluster
from .command import run
from .steady_load import PREFIX, steady_load
from .view_process import processor_seconds, view_process
from .worker_process import TIMEOUT_S, cpu_s, follow, worker_process

LOOK_INTERVAL_S = 0.02
"""Asking more often would be most of what the view does."""
WARM_UP_ATTEMPTS = 50


def measure(*, spans_per_s: int = 1000, attempts: int = 400, view_attempts: int = 150) -> dict[str, float]:
    """Milliseconds without load, at the load, and at the load with the view.

    Args:
        spans_per_s: the load.
        attempts: that are timed for a consumer of the topic, without and with load each.
        view_attempts: that are timed for readers of the view, of either kind each.
    """
    with cluster() as kafka:
        figures = _percentiles("idle_to_topic", _idle(kafka.settings(), attempts))
        settings = kafka.settings()
        with worker_process(settings) as worker, steady_load(settings, spans_per_s), closing(_Runs(settings)) as runs:
            runs.wait_for_load()
            runs.warm_up()
            before_s, began_s = cpu_s(worker), time.monotonic()
            figures |= _percentiles("loaded_to_topic", [runs.one().to_topic_ms for _ in range(attempts)])
            figures["worker_cpu_percent"] = 100 * (cpu_s(worker) - before_s) / (time.monotonic() - began_s)
            if view_attempts:
                figures |= _of_view(settings, runs, view_attempts)
    return figures | {"load_average": os.getloadavg()[0]}


def main() -> None:
    """Measure and print."""
    run(__doc__, measure, spans_per_s=1000, attempts=400, view_attempts=150)


def _idle(settings: Settings, attempts: int) -> list[float]:
    with worker_process(settings), closing(_Runs(settings)) as runs:
        runs.warm_up()
        return [runs.one().to_topic_ms for _ in range(attempts)]


def _of_view(settings: Settings, runs: _Runs, attempts: int) -> dict[str, float]:
    with view_process(settings) as view, closing(ViewClient(settings)) as client:
        client.wait_for("now", wait_s=TIMEOUT_S)
        before_s, began_s = processor_seconds(view.pid), time.monotonic()
        plain = [runs.one(lambda place: _look(client, place)).whole_ms for _ in range(attempts)]
        cpu_percent = 100 * (processor_seconds(view.pid) - before_s) / (time.monotonic() - began_s)
        waiting = [runs.one(lambda place: client.wait_for([place])).whole_ms for _ in range(attempts)]
    return {
        **_percentiles("loaded_to_waiting_reader_of_view", waiting),
        **_percentiles("loaded_to_plain_reader_of_view", plain),
        "view_cpu_percent": cpu_percent,
    }


def _look(client: ViewClient, place: Position) -> None:
    while client.positions()["positions"].get(place.topic, {}).get(str(place.partition), 0) <= place.offset:
        time.sleep(LOOK_INTERVAL_S)


class _Timed(NamedTuple):
    to_topic_ms: float
    whole_ms: float


class _Runs:
    """Attempts, one after another, as a Runner would have them."""

    def __init__(self, settings: Settings) -> None:
        self._publisher = KafkaPublisher(settings, linger_ms=0.0)
        self._states = follow(settings, ROLLOUTS)
        self._trajectories = follow(settings, TRAJECTORIES)
        self._count = 0

    def one(self, then: Callable[[Position], None] = lambda _: None) -> _Timed:
        """One attempt; ``then`` is given the trajectory's place as soon as a consumer has it."""
        self._count += 1
        rollout_id = f"timed-{self._count}"
        enqueued, started, ended = events(rollout_id)
        for event in (enqueued, started):
            self._publisher.publish(ROLLOUT_EVENTS, rollout_id, event).result()
            _next_of(self._states, rollout_id)
        for j in range(SPANS_PER_ATTEMPT):
            self._publisher.publish(SPANS, rollout_id, span(rollout_id, f"{rollout_id}-a1", j)).result()
        began = time.perf_counter()
        self._publisher.publish(ROLLOUT_EVENTS, rollout_id, ended)
        message = _next_of(self._trajectories, rollout_id)
        read = time.perf_counter()
        then(Position(TRAJECTORIES.name, message.partition() or 0, message.offset() or 0))
        whole = time.perf_counter()
        _next_of(self._states, rollout_id)
        return _Timed((read - began) * 1000, (whole - began) * 1000)

    def warm_up(self) -> None:
        """Some attempts whose times do not count."""
        for _ in range(WARM_UP_ATTEMPTS):
            self.one()

    def wait_for_load(self) -> None:
        """Until attempts of the load have ended."""
        _next_of(self._trajectories, f"{PREFIX}0")

    def close(self) -> None:
        self._publisher.close()


def _next_of(messages: Iterator[Message], key: str) -> Message:
    return next(message for message in messages if message.key() == key.encode())


def _percentiles(what: str, milliseconds: list[float]) -> dict[str, float]:
    ordered = sorted(milliseconds)
    return {
        f"{what}_p50_ms": ordered[len(ordered) // 2],
        f"{what}_p99_ms": ordered[int(len(ordered) * 0.99)],
    }


if __name__ == "__main__":
    main()
