"""The worker, from topic to topic: spans/s through the assembler, and events/s through the life cycle.

``python -m benchmarks.worker`` prints a table, and with ``--json`` one JSON object. Uses the cluster named by
``LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS``, or a broker of its own. Topics are new ones, with a random prefix. How soon a
trajectory can be read: ``benchmarks.trajectory_latency``.
"""

from __future__ import annotations

from contextlib import closing

from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import RolloutSpec
from lightstream.schemas.topics import ROLLOUT_EVENTS, ROLLOUTS, SPANS, TRAJECTORIES, Topic

from .attempts import SPANS_PER_ATTEMPT, attempt_closed, attempt_opened, events, span
from .cluster import cluster
from .command import run
from .worker_process import TIMEOUT_S, cpu_s, follow, worker_process


def measure(*, attempts: int = 5000, rollouts: int = 3000) -> dict[str, float]:
    """Run both measurements, each on topics of its own.

    Args:
        attempts: with 4 spans each, for the assembler's throughput.
        rollouts: with 3 events each, for the life cycle's throughput.
    """
    with cluster() as kafka:
        return _spans_per_second(kafka.settings(), attempts) | _events_per_second(kafka.settings(), rollouts)


def main() -> None:
    """Measure and print."""
    run(__doc__, measure, attempts=5000, rollouts=3000)


def _spans_per_second(settings: Settings, attempts: int) -> dict[str, float]:
    with closing(KafkaPublisher(settings)) as publisher:
        for i in range(attempts):
            spec = RolloutSpec(rollout_id=f"r{i}")
            attempt_id = f"r{i}-a1"
            publisher.publish(SPANS, spec.rollout_id, attempt_opened(spec, attempt_id))
            for j in range(SPANS_PER_ATTEMPT):
                publisher.publish(SPANS, spec.rollout_id, span(spec.rollout_id, attempt_id, i * SPANS_PER_ATTEMPT + j))
            publisher.publish(SPANS, spec.rollout_id, attempt_closed(spec.rollout_id, attempt_id))
        assert publisher.flush(TIMEOUT_S) == 0
    spans = attempts * SPANS_PER_ATTEMPT
    with worker_process(settings) as pid:
        before_s = cpu_s(pid)
        times = _record_times(settings, TRAJECTORIES, attempts)
        return {
            "assembler_spans_per_s": spans / (times[-1] - times[0]),
            "assembler_cpu_us_per_span": 1e6 * (cpu_s(pid) - before_s) / spans,
        }


def _events_per_second(settings: Settings, rollouts: int) -> dict[str, float]:
    with closing(KafkaPublisher(settings)) as publisher:
        for i in range(rollouts):
            for event in events(f"r{i}"):
                publisher.publish(ROLLOUT_EVENTS, event.rollout_id, event)
        assert publisher.flush(TIMEOUT_S) == 0
    with worker_process(settings) as pid:
        before_s = cpu_s(pid)
        times = _record_times(settings, ROLLOUTS, 3 * rollouts)
        return {
            "life_cycle_events_per_s": 3 * rollouts / (times[-1] - times[0]),
            "life_cycle_cpu_us_per_event": 1e6 * (cpu_s(pid) - before_s) / (3 * rollouts),
        }


def _record_times(settings: Settings, topic: Topic, count: int) -> list[float]:
    """The broker-side time (seconds, millisecond resolution) of each record of ``topic``, ascending."""
    follower = follow(settings, topic)
    return sorted(next(follower).timestamp()[1] / 1000 for _ in range(count))


if __name__ == "__main__":
    main()
