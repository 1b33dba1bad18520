"""Attempts at a steady rate, as a process beside what is measured: ``python -m benchmarks.steady_load SPANS_PER_S``.

Each goes the whole way (facts through the life cycle, spans of 640 token ids, an end) until the process is terminated.
Spans are sent as the exporter sends them, with its linger of 5 ms; facts as a store sends them, without. As with a
Runner, an attempt ends when its spans are durable: else a busy machine has late spans, for which the log is read back.
"""

from __future__ import annotations

import heapq
import sys
import time
from collections import defaultdict
from concurrent.futures import Future
from contextlib import closing
from itertools import count

from lightstream.schemas.kafka import KafkaPublisher, Position
from lightstream.schemas.settings import Settings
from lightstream.schemas.topics import ROLLOUT_EVENTS, SPANS

from .attempts import facts, span

__all__ = ["PREFIX", "main"]

PREFIX = "load-"
"""Of the rollouts' ids."""

SPANS_EACH = 10
FIRST_SPAN_S, SPAN_INTERVAL_S = 1.0, 0.1
"""After the start's fact: the life cycle has opened the attempt by then."""

TICK_S = 0.005
"""Spans go out together so often: the exporter's linger, without waking up for each."""

END, START = -1, -2


def main(spans_per_s: float) -> None:
    """Publish until terminated."""
    settings = Settings.load()
    with (
        closing(KafkaPublisher(settings)) as of_spans,
        closing(KafkaPublisher(settings, linger_ms=0.0, compression="lz4")) as of_facts,
    ):
        interval_s = SPANS_EACH / spans_per_s
        numbers = count()
        due: list[tuple[float, int, int]] = [(time.monotonic(), next(numbers), START)]
        on_their_way: dict[int, list[Future[Position]]] = defaultdict(list)
        while True:
            at, number, what = heapq.heappop(due)
            time.sleep(max(at - time.monotonic(), 0.0))
            rollout_id = f"{PREFIX}{number}"
            if what >= 0:
                record = span(rollout_id, f"{rollout_id}-a1", number * SPANS_EACH + what)
                on_their_way[number].append(of_spans.publish(SPANS, rollout_id, record))
                continue
            enqueued, started, ended = facts(rollout_id)
            if what == END:
                if all(durable.done() for durable in on_their_way[number]):
                    of_facts.publish(ROLLOUT_EVENTS, rollout_id, ended)
                    del on_their_way[number]
                else:
                    heapq.heappush(due, (time.monotonic() + TICK_S, number, END))
                continue
            of_facts.publish(ROLLOUT_EVENTS, rollout_id, enqueued)
            of_facts.publish(ROLLOUT_EVENTS, rollout_id, started)
            for each in range(SPANS_EACH):
                tick = (at + FIRST_SPAN_S + each * SPAN_INTERVAL_S) // TICK_S + 1
                heapq.heappush(due, (tick * TICK_S, number, each))
            heapq.heappush(due, (at + FIRST_SPAN_S + SPANS_EACH * SPAN_INTERVAL_S, number, END))
            heapq.heappush(due, (at + interval_s, next(numbers), START))


if __name__ == "__main__":
    main(float(sys.argv[1]))
