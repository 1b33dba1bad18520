"""How soon a span that Kafka has acknowledged shows to a plain reader of the view, at a load.

``python -m benchmarks.freshness`` prints a table, and with ``--json`` one JSON object. Uses the cluster named by
``LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS``, or a broker of its own. Topics are new ones, with a random prefix.

The load is attempts of ten spans with their events, first without a worker, then beside one that makes marks, states
and trajectories of them: two cores have nothing left then. One span after another is sent at random moments; from its
acknowledgement on, a reader that names no offset asks for it again and again. Bars at 1,000 spans/s: p50 150 ms, p99
500 ms, transactions 0.25 of a core (the writing thread's time: DuckDB's own threads are in the view's).
"""

from __future__ import annotations

import os
import random
import time
from contextlib import closing, nullcontext

import httpx
from prometheus_client.parser import text_string_to_metric_families

from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.schemas.topics import SPANS
from lightstream.store_views.client import ViewClient

from .attempts import span
from .cluster import cluster
from .command import run
from .steady_load import steady_load
from .view_process import CATCH_UP_TIMEOUT_S, processor_seconds, view_process
from .worker_process import worker_process

PAUSE_S_MAX = 0.5
"""Spans come at any moment between two transactions."""
WARM_UP = 20
SEEN = "SELECT 1 FROM spans_raw WHERE log_partition = $partition AND log_offset = $offset"


def measure(*, spans_per_s: int = 1000, spans: int = 300) -> dict[str, float]:
    """Milliseconds from acknowledgement to answer, and what transactions and the view take of a core.

    Args:
        spans_per_s: the load.
        spans: that are timed.
    """
    with cluster() as kafka:
        alone = _figures(kafka.settings(folder="alone"), spans_per_s, spans, has_worker=False)
        beside = _figures(kafka.settings(folder="beside"), spans_per_s, spans, has_worker=True)
    return alone | {f"beside_a_worker_{name}": value for name, value in beside.items()}


def main() -> None:
    """Measure and print."""
    run(__doc__, measure, spans_per_s=1000, spans=300)


def _figures(settings: Settings, spans_per_s: int, spans: int, *, has_worker: bool) -> dict[str, float]:
    with (
        worker_process(settings) if has_worker else nullcontext(),
        view_process(settings) as view,
        steady_load(settings, spans_per_s),
        closing(KafkaPublisher(settings, linger_ms=0.0)) as publisher,
        closing(ViewClient(settings, patience_s=CATCH_UP_TIMEOUT_S)) as client,
    ):
        client.wait_for("now", wait_s=CATCH_UP_TIMEOUT_S)
        for number in range(WARM_UP):
            _one(publisher, client, number)
        count, cpu_s = _transactions(settings)
        view_s, began_s = processor_seconds(view.pid), time.monotonic()
        ordered = sorted(_one(publisher, client, WARM_UP + number) for number in range(spans))
        seconds = time.monotonic() - began_s
        count_then, cpu_then_s = _transactions(settings)
        view_s = processor_seconds(view.pid) - view_s
    return {
        "ack_to_visible_p50_ms": ordered[len(ordered) // 2],
        "ack_to_visible_p99_ms": ordered[int(len(ordered) * 0.99)],
        "transactions_per_s": (count_then - count) / seconds,
        "transactions_core": (cpu_then_s - cpu_s) / seconds,
        "view_core": view_s / seconds,
        "load_average": os.getloadavg()[0],
    }


def _one(publisher: KafkaPublisher, client: ViewClient, number: int) -> float:
    time.sleep(random.random() * PAUSE_S_MAX)
    record = span(f"timed-{number}", f"timed-{number}-a1", number)
    place = publisher.publish(SPANS, f"timed-{number}", record).result()
    began_s = time.perf_counter()
    while not client.query(SEEN, params={"partition": place.partition, "offset": place.offset}).rows:
        pass
    return (time.perf_counter() - began_s) * 1000


def _transactions(settings: Settings) -> tuple[float, float]:
    """How many there were so far, and the processor seconds of the thread that makes them."""
    text = httpx.get(f"{discover(settings, 'view').address}/metrics").raise_for_status().text
    values = {sample.name: sample.value for family in text_string_to_metric_families(text) for sample in family.samples}
    return (
        values["lightstream_view_transaction_seconds_count"],
        values.get("lightstream_view_transaction_processor_seconds_total", 0.0),
    )


if __name__ == "__main__":
    main()
