"""The worker, from topic to topic: spans/s through the assembler, facts/s through the life cycle, and latency.

``python -m benchmarks.worker`` prints a table, and with ``--json`` one JSON object. Uses the cluster named by
``LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS``, or a broker of its own. Topics are new ones, with a random prefix.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from lightstream.schemas.kafka import KafkaPublisher, consumer_config
from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.schemas.records import (
    AttemptChanges,
    AttemptClosed,
    AttemptOpened,
    AttemptStatus,
    EventKind,
    LlmCall,
    RolloutEvent,
    RolloutSpec,
    RolloutStatus,
    SpanRecord,
)
from lightstream.schemas.services import find
from lightstream.schemas.settings import Settings
from lightstream.schemas.topics import ROLLOUT_EVENTS, ROLLOUTS, SPANS, TRAJECTORIES, Topic

from .cluster import cluster
from .command import run

__all__ = ["main", "measure"]

PROMPT = pack_int32(range(1000, 1512))
RESPONSE = pack_int32(range(2000, 2128))
LOGPROBS = pack_float32([-0.5] * 128)
"""640 token ids a span."""

SPANS_PER_ATTEMPT = 4
TIMEOUT_S = 300.0
RUN_WORKER = """
from lightstream.schemas.settings import Settings
from lightstream.stream_processors.worker import run
run(Settings.load())
"""


def measure(*, attempts: int = 5000, rollouts: int = 3000, latencies: int = 300) -> dict[str, float]:
    """Run all three measurements, each on topics of its own.

    Args:
        attempts: with 4 spans each, for the assembler's throughput.
        rollouts: with 3 facts each, for the life cycle's throughput.
        latencies: attempts that end one after another, for the latency.
    """
    with cluster() as kafka:
        return {
            **_spans_per_second(kafka.settings(), attempts),
            **_facts_per_second(kafka.settings(), rollouts),
            **_latency_ms(kafka.settings(), latencies),
        }


def main() -> None:
    """Measure and print."""
    run(__doc__, measure, attempts=5000, rollouts=3000, latencies=300)


def _spans_per_second(settings: Settings, attempts: int) -> dict[str, float]:
    with closing(KafkaPublisher(settings)) as publisher:
        for i in range(attempts):
            spec = RolloutSpec(rollout_id=f"r{i}")
            attempt_id = f"r{i}-a1"
            publisher.publish(SPANS, spec.rollout_id, _opened(spec, attempt_id))
            for j in range(SPANS_PER_ATTEMPT):
                publisher.publish(SPANS, spec.rollout_id, _span(spec.rollout_id, attempt_id, i * SPANS_PER_ATTEMPT + j))
            publisher.publish(SPANS, spec.rollout_id, _closed(spec.rollout_id, attempt_id))
        assert publisher.flush(TIMEOUT_S) == 0
    with _worker(settings) as pid:
        before_s = _cpu_s(pid)
        times = _record_times(settings, TRAJECTORIES, attempts)
        cpu_s = _cpu_s(pid) - before_s
    spans = attempts * SPANS_PER_ATTEMPT
    return {
        "assembler_spans_per_s": spans / (times[-1] - times[0]),
        "assembler_cpu_us_per_span": 1e6 * cpu_s / spans,
    }


def _facts_per_second(settings: Settings, rollouts: int) -> dict[str, float]:
    with closing(KafkaPublisher(settings)) as publisher:
        for i in range(rollouts):
            for fact in _facts(f"r{i}"):
                publisher.publish(ROLLOUT_EVENTS, fact.rollout_id, fact)
        assert publisher.flush(TIMEOUT_S) == 0
    with _worker(settings) as pid:
        before_s = _cpu_s(pid)
        times = _record_times(settings, ROLLOUTS, 3 * rollouts)
        cpu_s = _cpu_s(pid) - before_s
    return {
        "life_cycle_facts_per_s": 3 * rollouts / (times[-1] - times[0]),
        "life_cycle_cpu_us_per_fact": 1e6 * cpu_s / (3 * rollouts),
    }


def _latency_ms(settings: Settings, latencies: int) -> dict[str, float]:
    measured: list[float] = []
    with _worker(settings), closing(KafkaPublisher(settings, linger_ms=0.0)) as publisher:
        states, trajectories = _follower(settings, ROLLOUTS), _follower(settings, TRAJECTORIES)
        for i in range(latencies):
            enqueued, started, ended = _facts(f"r{i}")
            for fact in (enqueued, started):
                publisher.publish(ROLLOUT_EVENTS, fact.rollout_id, fact).result()
                next(states)
            for j in range(SPANS_PER_ATTEMPT):
                publisher.publish(SPANS, started.rollout_id, _span(started.rollout_id, f"r{i}-a1", j)).result()
            began = time.perf_counter()
            publisher.publish(ROLLOUT_EVENTS, ended.rollout_id, ended)
            next(trajectories)
            measured.append((time.perf_counter() - began) * 1000)
            next(states)
    measured.sort()
    return {
        "attempt_end_to_trajectory_p50_ms": measured[len(measured) // 2],
        "attempt_end_to_trajectory_p99_ms": measured[int(len(measured) * 0.99)],
    }


@contextmanager
def _worker(settings: Settings) -> Generator[int]:
    """A worker that is ready; yields its process id."""
    process = subprocess.Popen([sys.executable, "-c", RUN_WORKER], env=os.environ | settings.to_environment())
    try:
        deadline = time.monotonic() + TIMEOUT_S
        while find(settings, "worker") is None:
            assert process.poll() is None, "the worker ended"
            assert time.monotonic() < deadline, "the worker does not start"
            time.sleep(0.01)
        yield process.pid
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


def _cpu_s(pid: int) -> float:
    """CPU time of a process since it started, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _follower(settings: Settings, topic: Topic) -> Iterator[float]:
    """The broker-side time (seconds, millisecond resolution) of each record of ``topic``, as they come."""
    consumer = Consumer(consumer_config(settings, group_id="benchmark") | {"fetch.wait.max.ms": 10})
    name = topic.full_name(settings.topic_prefix)
    consumer.assign(
        [TopicPartition(name, p, OFFSET_BEGINNING) for p in range(topic.partitions(settings.topic_partitions))]
    )
    while True:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"nothing more in {name} for {TIMEOUT_S:g} s"
        if message.error() is None:
            yield message.timestamp()[1] / 1000


def _record_times(settings: Settings, topic: Topic, count: int) -> list[float]:
    follower = _follower(settings, topic)
    return sorted(next(follower) for _ in range(count))


def _facts(rollout_id: str) -> tuple[RolloutEvent, RolloutEvent, RolloutEvent]:
    now = time.time_ns()
    spec = RolloutSpec(rollout_id=rollout_id, input_json='{"question": "what is 2 + 2?"}', enqueued_unix_nano=now)
    attempt_id = f"{rollout_id}-a1"
    return (
        RolloutEvent(
            event_id=f"{rollout_id}:enqueued",
            kind=EventKind.ENQUEUED,
            rollout_id=rollout_id,
            occurred_unix_nano=now,
            rollout=spec,
        ),
        RolloutEvent(
            event_id=f"{attempt_id}:started",
            kind=EventKind.ATTEMPT_STARTED,
            rollout_id=rollout_id,
            occurred_unix_nano=now,
            attempt_id=attempt_id,
            attempt_sequence=1,
        ),
        RolloutEvent(
            event_id=f"{attempt_id}:ended",
            kind=EventKind.ATTEMPT_UPDATED,
            rollout_id=rollout_id,
            occurred_unix_nano=now,
            attempt_id=attempt_id,
            attempt_changes=AttemptChanges(status=AttemptStatus.SUCCEEDED),
        ),
    )


def _opened(spec: RolloutSpec, attempt_id: str) -> AttemptOpened:
    return AttemptOpened(rollout=spec, attempt_id=attempt_id, attempt_sequence=1, opened_unix_nano=1)


def _closed(rollout_id: str, attempt_id: str) -> AttemptClosed:
    return AttemptClosed(
        rollout_id=rollout_id,
        attempt_id=attempt_id,
        attempt_sequence=1,
        status=AttemptStatus.SUCCEEDED,
        rollout_status=RolloutStatus.SUCCEEDED,
        final=True,
        closed_unix_nano=2,
    )


def _span(rollout_id: str, attempt_id: str, number: int) -> SpanRecord:
    return SpanRecord(
        rollout_id=rollout_id,
        attempt_id=attempt_id,
        trace_id=f"{number:032x}",
        span_id=f"{number + 1:016x}",
        name="chat.completion",
        start_unix_nano=number,
        end_unix_nano=number + 1,
        llm_call=LlmCall(
            response_id=f"chatcmpl-{number}",
            requested_model="policy",
            response_model="policy@1",
            policy_version=1,
            prompt_token_ids=PROMPT,
            response_token_ids=RESPONSE,
            response_logprobs=LOGPROBS,
            finish_reason="stop",
            http_status=200,
            request_json='{"messages": [{"role": "user", "content": "what is 2 + 2?"}]}',
            response_json='{"role": "assistant", "content": "4"}',
        ),
    )


if __name__ == "__main__":
    main()
