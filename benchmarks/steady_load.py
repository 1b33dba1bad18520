"""Attempts at a steady rate, as a process beside what is measured: ``python -m benchmarks.steady_load SPANS_PER_S``.

Each goes the whole way (events through the life cycle, spans of 640 token ids, an end) until the process is terminated.
Spans are sent as the exporter sends them, with its linger of 5 ms; events as a store sends them, without. As with a
Runner, an attempt ends when its spans are durable: else a busy machine has late spans, for which the log is read back.
"""

from __future__ import annotations

import heapq
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from itertools import count

from lightstream.runtime.kafka import KafkaPublisher, Outgoing, Position
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import RolloutEvent
from lightstream.schemas.topics import ROLLOUT_EVENTS, SPANS

from .attempts import events, span

PREFIX = "load-"
"""Of the rollouts' ids."""

SPANS_EACH = 10
FIRST_SPAN_S, SPAN_INTERVAL_S = 1.0, 0.1
"""After the start's event: the life cycle has opened the attempt by then."""

TICK_S = 0.005
"""Spans go out together so often: the exporter's linger, without waking up for each."""

END, START = -1, -2

STOP_TIMEOUT_S = 60.0


@contextmanager
def steady_load(settings: Settings, spans_per_s: int) -> Generator[None]:
    """Have a process publish so many spans a second, in this block.

    Raises:
        AssertionError: it ended by itself.
    """
    command = [sys.executable, "-m", "benchmarks.steady_load", str(spans_per_s)]
    process = subprocess.Popen(command, env=os.environ | settings.to_environment())
    try:
        yield
        assert process.poll() is None, "the load ended"
    finally:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)


def main(spans_per_s: float) -> None:
    """Publish until terminated."""
    settings = Settings.load()
    with (
        closing(KafkaPublisher(settings)) as of_spans,
        closing(KafkaPublisher(settings, linger_ms=0.0, compression="lz4")) as of_events,
    ):
        interval_s = SPANS_EACH / spans_per_s
        numbers = count()
        due: list[tuple[float, int, int]] = [(time.monotonic(), next(numbers), START)]
        on_their_way: dict[int, list[Future[list[Position]]]] = defaultdict(list)
        while True:
            time.sleep(max(due[0][0] - time.monotonic(), 0.0))
            now_s = time.monotonic()
            spans: list[Outgoing] = []
            of_these: list[int] = []
            while due[0][0] <= now_s:
                at, number, what = heapq.heappop(due)
                rollout_id = f"{PREFIX}{number}"
                if what >= 0:
                    record = span(rollout_id, f"{rollout_id}-a1", number * SPANS_EACH + what)
                    spans.append(Outgoing(SPANS, rollout_id, of_spans.encoded(SPANS, record)))
                    of_these.append(number)
                    continue
                enqueued, started, ended = events(rollout_id)
                if what == END:  # behind all its spans, those that go out below too
                    if number not in of_these and all(durable.done() for durable in on_their_way[number]):
                        of_events.publish(ROLLOUT_EVENTS, rollout_id, ended)
                        del on_their_way[number]
                    else:
                        heapq.heappush(due, (now_s + TICK_S, number, END))
                    continue
                _hand_over(of_events, [_outgoing(of_events, event) for event in (enqueued, started)])
                for each in range(SPANS_EACH):
                    tick = (at + FIRST_SPAN_S + each * SPAN_INTERVAL_S) // TICK_S + 1
                    heapq.heappush(due, (tick * TICK_S, number, each))
                heapq.heappush(due, (at + FIRST_SPAN_S + SPANS_EACH * SPAN_INTERVAL_S, number, END))
                heapq.heappush(due, (at + interval_s, next(numbers), START))
            if spans:
                durable = _hand_over(of_spans, spans)
                for number in of_these:
                    on_their_way[number].append(durable)


def _outgoing(publisher: KafkaPublisher, event: RolloutEvent) -> Outgoing:
    return Outgoing(ROLLOUT_EVENTS, event.rollout_id, publisher.encoded(ROLLOUT_EVENTS, event))


def _hand_over(publisher: KafkaPublisher, records: list[Outgoing]) -> Future[list[Position]]:
    """In one call of the client: what makes the load is to take little of the processor from what is measured."""
    handed_over, durable = publisher.publish_all(records)
    if handed_over < len(records):
        raise RuntimeError("the send buffer is full: this machine does not keep up with the load")
    return durable


if __name__ == "__main__":
    main(float(sys.argv[1]))
