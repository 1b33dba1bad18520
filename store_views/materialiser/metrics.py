"""Metrics of the view."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric

from lightstream.schemas.topics import TOPICS

if TYPE_CHECKING:
    from .database import ViewDatabase
    from .materialiser import Materialiser

ROWS = Counter("lightstream_view_rows", "Rows added to the raw tables.")
TRANSACTION_SECONDS = Histogram(
    "lightstream_view_transaction_seconds",
    "Time that a transaction took.",
    buckets=(0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
)
TRANSACTION_PROCESSOR_SECONDS = Counter(
    "lightstream_view_transaction_processor_seconds", "Processor time of the thread that makes transactions, in them."
)


def view_metrics(materialiser: Materialiser) -> Iterable[Metric]:
    """Lag, progress, and the kept sums of all runs."""
    reached = materialiser.positions.snapshot()
    lag = {topic.name: 0 for topic in TOPICS}
    for (topic, partition), end in materialiser.end_offsets().items():
        lag[topic] += max(0, end - reached.get((topic, partition), 0))
    by_topic = GaugeMetricFamily("lightstream_view_lag_records", "Records not yet reflected.", labels=["topic"])
    for topic, records in lag.items():
        by_topic.add_metric([topic], records)
    progress = materialiser.rebuilding
    rebuilding = GaugeMetricFamily("lightstream_view_rebuilding", "1 until all of the log at the start is reflected.")
    rebuilding.add_metric([], progress is not None)
    remaining = GaugeMetricFamily("lightstream_view_rebuilding_records_left", "Records to read until then.")
    remaining.add_metric([], 0 if progress is None else progress.records_total - progress.records_done)
    unread = GaugeMetricFamily("lightstream_view_unread_records", "Records kept until a newer version is installed.")
    unread.add_metric([], sum(materialiser.unread.values()))
    return [by_topic, rebuilding, remaining, unread, *_sums(materialiser.database)]


def _sums(database: ViewDatabase) -> Iterable[Metric]:
    with database.cursor() as cursor:
        by_status = cursor.execute("SELECT status, sum(rollouts)::BIGINT FROM run_rollouts GROUP BY status").fetchall()
        by_fate = cursor.execute(
            "SELECT fate, reason, sum(calls)::BIGINT FROM run_calls GROUP BY fate, reason"
        ).fetchall()
    rollouts = GaugeMetricFamily("lightstream_rollouts", "Rollouts by status, of all runs.", labels=["status"])
    for status, count in by_status:
        rollouts.add_metric([status], count)
    calls = GaugeMetricFamily("lightstream_calls", "LLM calls of assembled attempts.", labels=["fate", "reason"])
    for fate, reason, count in by_fate:
        calls.add_metric([fate, reason], count)
    return [rollouts, calls]
