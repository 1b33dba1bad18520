"""Counters and histograms of one's own, for the console and for Prometheus.

The servers of Lightstream have metrics already (``/metrics``); these are for programs that count what they do
themselves, and for stores that are given a ``tracker``.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Histogram

__all__ = [
    "ConsoleMetricsBackend",
    "LabelDict",
    "LabelKey",
    "MetricsBackend",
    "MultiMetricsBackend",
    "PrometheusMetricsBackend",
    "get_prometheus_registry",
    "setup_multiprocess_prometheus",
    "shutdown_metrics",
]

logger = logging.getLogger(__name__)

LabelDict: TypeAlias = dict[str, str]
LabelKey: TypeAlias = tuple[tuple[str, str], ...]
"""(label, value) pairs, in the order in which the labels were registered."""

MULTIPROCESS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""prometheus_client's variable: the folder in which several processes keep their values."""

CONSOLE_BUCKETS = (0.1, 0.2, 0.5, 1.0, 2.0)


class MetricsBackend:
    """Where counts and measurements go. Each metric is registered before it is used."""

    def has_prometheus(self) -> bool:
        """Return whether Prometheus can read it."""
        return False

    def register_counter(
        self, name: str, label_names: Sequence[str] | None = None, group_level: int | None = None
    ) -> None:
        """Make a counter; to make the same one again changes nothing.

        Args:
            name: of the metric.
            label_names: the labels of each count, the coarsest first.
            group_level: on the console, how many of the labels are told apart.

        Raises:
            ValueError: there is another metric of that name.
        """
        raise NotImplementedError

    def register_histogram(
        self,
        name: str,
        label_names: Sequence[str] | None = None,
        buckets: Sequence[float] | None = None,
        group_level: int | None = None,
    ) -> None:
        """Make a histogram; to make the same one again changes nothing.

        Args:
            name, label_names, group_level: as for a counter.
            buckets: upper bounds, in the unit of the values.

        Raises:
            ValueError: there is another metric of that name.
        """
        raise NotImplementedError

    async def inc_counter(self, name: str, amount: float = 1.0, labels: LabelDict | None = None) -> None:
        """Count ``amount``.

        Raises:
            ValueError: there is no such counter, or one of its labels has no value.
        """
        raise NotImplementedError

    async def observe_histogram(self, name: str, value: float, labels: LabelDict | None = None) -> None:
        """Take a value.

        Raises:
            ValueError: there is no such histogram, or one of its labels has no value.
        """
        raise NotImplementedError


@dataclass(slots=True)
class _Metric:
    """A registered one. ``buckets`` are those of a histogram; a counter has none (``None``)."""

    name: str
    label_names: tuple[str, ...]
    buckets: tuple[float, ...] | None
    group_level: int | None
    events: dict[LabelKey, deque[tuple[float, float]]] = field(default_factory=dict)
    """(time, value), the oldest first; seconds of the monotonic clock."""

    @property
    def kind(self) -> str:
        return "counter" if self.buckets is None else "histogram"


class _Registry:
    """The metrics of one backend, by name."""

    def __init__(self) -> None:
        self.metrics: dict[str, _Metric] = {}

    def add(self, metric: _Metric) -> None:
        """Add it, unless it is there.

        Raises:
            ValueError: there is another one of that name.
        """
        known = self.metrics.setdefault(metric.name, metric)
        if (known.label_names, known.buckets) != (metric.label_names, metric.buckets):
            raise ValueError(
                f"{metric.name} is registered already, as a {known.kind} with the labels {list(known.label_names)} and "
                f"the buckets {known.buckets}; not as a {metric.kind} with {list(metric.label_names)} and "
                f"{metric.buckets}."
            )

    def find(self, kind: str, name: str, labels: Mapping[str, str] | None) -> tuple[_Metric, LabelKey]:
        """The metric, and the values of its labels; others are left out.

        Raises:
            ValueError: there is none, or a label has no value.
        """
        metric = self.metrics.get(name)
        if metric is None or metric.kind != kind:
            raise ValueError(f"no {kind} {name!r} is registered: register_{kind}({name!r}, …) comes first.")
        missing = [label for label in metric.label_names if label not in (labels or {})]
        if missing:
            raise ValueError(f"the {kind} {name!r} needs a value for the labels {missing}.")
        return metric, tuple((label, (labels or {})[label]) for label in metric.label_names)


class ConsoleMetricsBackend(MetricsBackend):
    """Logs the rate of each counter, and of each histogram also the 50th, 95th and 99th percentile. Thread-safe.

    Args:
        window_seconds: only what happened within it counts; ``None``: all of it.
        log_interval_seconds: what comes in later than this after the last line writes the next one.
        group_level: how many labels are told apart, for every metric; ``None``: as each was registered with, else none.
    """

    def __init__(
        self,
        window_seconds: float | None = 60.0,
        log_interval_seconds: float = 10.0,
        group_level: int | None = None,
    ) -> None:
        self.window_seconds = window_seconds
        self.log_interval_seconds = log_interval_seconds
        self.group_level = group_level
        self._registry = _Registry()
        self._lock = threading.Lock()
        self._logged: float | None = None

    def register_counter(
        self, name: str, label_names: Sequence[str] | None = None, group_level: int | None = None
    ) -> None:
        self._registry.add(_Metric(name, tuple(label_names or ()), None, group_level))

    def register_histogram(
        self,
        name: str,
        label_names: Sequence[str] | None = None,
        buckets: Sequence[float] | None = None,
        group_level: int | None = None,
    ) -> None:
        bounds = CONSOLE_BUCKETS if buckets is None else tuple(buckets)
        self._registry.add(_Metric(name, tuple(label_names or ()), bounds, group_level))

    async def inc_counter(self, name: str, amount: float = 1.0, labels: LabelDict | None = None) -> None:
        self._note("counter", name, amount, labels)

    async def observe_histogram(self, name: str, value: float, labels: LabelDict | None = None) -> None:
        self._note("histogram", name, value, labels)

    def _note(self, kind: str, name: str, value: float, labels: LabelDict | None) -> None:
        metric, key = self._registry.find(kind, name, labels)
        now = time.monotonic()
        with self._lock:
            metric.events.setdefault(key, deque()).append((now, value))
            if self._logged is not None and now - self._logged < self.log_interval_seconds:
                return
            self._logged = now
            lines = self._lines(now)
        if lines:
            logger.info("%s", "  ".join(lines))

    def _lines(self, now: float) -> list[str]:
        """A text for each metric and group of labels. Events that are too old are forgotten."""
        lines: list[str] = []
        for metric in self._registry.metrics.values():
            groups: dict[LabelKey, list[tuple[float, float]]] = {}
            level = max(0, (self.group_level if self.group_level is not None else metric.group_level) or 0)
            for key, events in list(metric.events.items()):
                while events and self.window_seconds is not None and events[0][0] < now - self.window_seconds:
                    events.popleft()
                if not events:
                    del metric.events[key]
                    continue
                groups.setdefault(key[:level], []).extend(events)
            lines += [_line(metric, key, events, now, self.window_seconds) for key, events in groups.items()]
        return sorted(lines)


def _line(metric: _Metric, key: LabelKey, events: list[tuple[float, float]], now: float, window: float | None) -> str:
    labels = "{" + ", ".join(f"{name}={value}" for name, value in key) + "}" if key else ""
    since = now - min(at for at, _ in events)
    span_s = max(since if window is None else min(since, window), 1.0)
    if metric.buckets is None:
        return f"{metric.name}{labels} {sum(value for _, value in events) / span_s:.2f}/s"
    values = sorted(value for _, value in events)
    shares = ", ".join(f"p{percent} {_duration(_percentile(values, percent))}" for percent in (50, 95, 99))
    return f"{metric.name}{labels} {len(values) / span_s:.2f}/s, {shares}"


def _percentile(values: Sequence[float], percent: int) -> float:
    """Of sorted values, between the two that are nearest."""
    place = (len(values) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


def _duration(value_s: float) -> str:
    for unit, size_s in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(value_s) >= size_s:
            return f"{value_s / size_s:.2f} {unit}"
    return f"{value_s / 1e-9:.0f} ns"


class PrometheusMetricsBackend(MetricsBackend):
    """Metrics of prometheus_client, in its own registry. Dots in names become underscores.

    Backends of one process share metrics that are the same.

    Raises:
        ImportError: prometheus_client is not installed.
    """

    def __init__(self) -> None:
        import prometheus_client

        self._client = prometheus_client
        self._registry = _Registry()
        self._collectors: dict[str, Counter | Histogram] = {}

    def has_prometheus(self) -> bool:
        return True

    def register_counter(
        self, name: str, label_names: Sequence[str] | None = None, group_level: int | None = None
    ) -> None:
        self._add(_Metric(name, tuple(label_names or ()), None, group_level))

    def register_histogram(
        self,
        name: str,
        label_names: Sequence[str] | None = None,
        buckets: Sequence[float] | None = None,
        group_level: int | None = None,
    ) -> None:
        bounds = self._client.Histogram.DEFAULT_BUCKETS if buckets is None else tuple(buckets)
        self._add(_Metric(name, tuple(label_names or ()), bounds, group_level))

    def _add(self, metric: _Metric) -> None:
        name = metric.name.replace(".", "_")
        with _prometheus_lock:
            known, collector = _prometheus.get(name) or (metric, self._make(name, metric))
            if (known.name, known.label_names, known.buckets) != (metric.name, metric.label_names, metric.buckets):
                raise ValueError(
                    f"{name} is {known.name!r} to Prometheus already, a {known.kind} with the labels "
                    f"{list(known.label_names)} and the buckets {known.buckets}."
                )
            _prometheus[name] = known, collector
        self._registry.add(metric)
        self._collectors[metric.name] = collector

    def _make(self, name: str, metric: _Metric) -> Counter | Histogram:
        if metric.buckets is None:
            return self._client.Counter(name, f"The counter {metric.name}.", metric.label_names)
        return self._client.Histogram(name, f"The histogram {metric.name}.", metric.label_names, buckets=metric.buckets)

    async def inc_counter(self, name: str, amount: float = 1.0, labels: LabelDict | None = None) -> None:
        _, key = self._registry.find("counter", name, labels)
        self._of(name, key).inc(amount)

    async def observe_histogram(self, name: str, value: float, labels: LabelDict | None = None) -> None:
        _, key = self._registry.find("histogram", name, labels)
        self._of(name, key).observe(value)

    def _of(self, name: str, key: LabelKey) -> Any:
        collector = self._collectors[name]
        return collector.labels(**dict(key)) if key else collector


_prometheus_lock = threading.Lock()
_prometheus: dict[str, tuple[_Metric, Any]] = {}
"""Prometheus's name -> the metric of this process: its registry takes each name once."""


class MultiMetricsBackend(MetricsBackend):
    """Hands everything to each of several backends.

    Raises:
        ValueError: there are none.
    """

    def __init__(self, backends: Sequence[MetricsBackend]) -> None:
        if not backends:
            raise ValueError("MultiMetricsBackend needs at least one backend.")
        self._backends = list(backends)

    def has_prometheus(self) -> bool:
        return any(backend.has_prometheus() for backend in self._backends)

    def register_counter(
        self, name: str, label_names: Sequence[str] | None = None, group_level: int | None = None
    ) -> None:
        for backend in self._backends:
            backend.register_counter(name, label_names, group_level)

    def register_histogram(
        self,
        name: str,
        label_names: Sequence[str] | None = None,
        buckets: Sequence[float] | None = None,
        group_level: int | None = None,
    ) -> None:
        for backend in self._backends:
            backend.register_histogram(name, label_names, buckets, group_level)

    async def inc_counter(self, name: str, amount: float = 1.0, labels: LabelDict | None = None) -> None:
        for backend in self._backends:
            await backend.inc_counter(name, amount, labels)

    async def observe_histogram(self, name: str, value: float, labels: LabelDict | None = None) -> None:
        for backend in self._backends:
            await backend.observe_histogram(name, value, labels)


_made_folder: tempfile.TemporaryDirectory[str] | None = None
"""Removed when the process ends."""


def setup_multiprocess_prometheus() -> None:
    """Name a folder in which the processes of a program keep their metrics together, unless one is named already.

    Comes before prometheus_client is imported, and before processes are started.
    """
    global _made_folder
    if MULTIPROCESS_FOLDER in os.environ:
        logger.warning("%s is set; the folder must be empty when a program starts.", MULTIPROCESS_FOLDER)
        return
    _made_folder = tempfile.TemporaryDirectory(prefix="lightstream-metrics-")
    os.environ[MULTIPROCESS_FOLDER] = _made_folder.name


def get_prometheus_registry() -> CollectorRegistry:
    """The metrics of all processes that share a folder (``PROMETHEUS_MULTIPROC_DIR``), else of this process."""
    from prometheus_client import REGISTRY, CollectorRegistry, multiprocess

    if not os.environ.get(MULTIPROCESS_FOLDER):
        return REGISTRY
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # it has no types
    return registry


def shutdown_metrics(server: Any = None, worker: Any = None, *args: Any, **kwargs: Any) -> None:
    """Forget the gauges of a process that ended, in a folder of :func:`setup_multiprocess_prometheus`.

    Args:
        server, args, kwargs: gunicorn's, of no use here.
        worker: has the ``pid``; ``None``: this process.
    """
    if _made_folder is None:
        return
    from prometheus_client import multiprocess

    pid = getattr(worker, "pid", None) or os.getpid()
    multiprocess.mark_process_dead(pid, _made_folder.name)  # type: ignore[no-untyped-call]  # as above
