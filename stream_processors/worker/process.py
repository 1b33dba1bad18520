"""The worker process: start, announce, stop on a signal, and end with an error rather than stand still."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import faust
from aiokafka.errors import TopicAuthorizationFailedError  # type: ignore[import-untyped]  # has no types
from prometheus_client.core import GaugeMetricFamily, Metric
from starlette.applications import Starlette

from lightstream.runtime.clock import NANOS_PER_SECOND, Clock, SystemClock
from lightstream.runtime.gc_tuning import tune_gc
from lightstream.runtime.http.health_listener import LoopTurns
from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.kafka import (
    KafkaContact,
    KafkaPublisher,
    connected,
    grant_step,
    kafka_unavailable,
    kafka_user,
    unread_reason,
)
from lightstream.runtime.logs import log_to_stderr
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError, ServiceUnavailableError, TopicMismatchError
from lightstream.schemas.topics import DEAD_LETTERS, ROLLOUT_EVENTS, ROLLOUTS, SPANS, TRAJECTORIES

from .app import group_id, group_member, make_app
from .assembler_handler import AssemblerHandler
from .context import WorkerContext
from .large_trajectories import sweep_for_ever
from .lifecycle_handler import LifecycleHandler
from .processors import Processors
from .watchdog import Watchdog

logger = logging.getLogger(__name__)

SERVICE_NAME = "worker"

LINGER_MS = 0.0
"""Records of a batch are handed over in a row (:class:`Outbox`) and share requests without a wait: librdkafka counts
lingers in whole milliseconds, and any but none cost each of a rollout's records 1.2 ms. The life cycle's are small and
few at a time: zstd costs more there than it saves, lz4 next to nothing."""

"""For the topics, before the start."""

REPEATED_LINE_INTERVAL_S = 10.0

STOP_TIMEOUT_S = 20.0
"""A stop that takes longer (a thread of the Kafka client that never returns) ends the process the hard way."""

EXIT_STUCK = 70
"""Exit code then: EX_SOFTWARE of sysexits.h. What was not committed is read again."""


def run(settings: Settings) -> None:
    """Run the worker until SIGTERM or SIGINT. Blocking; call it in the main thread.

    Raises:
        ServiceUnavailableError: Kafka cannot be reached, lacks our topics or does not let us read them, or was lost for
            longer than clients wait.
        TopicMismatchError: topics that belong together have different numbers of partitions.
        LightstreamError: a processor failed. Its unfinished work was not committed: restart the worker.
    """
    log_to_stderr(settings)
    for noisy in ("faust", "mode", "aiokafka"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.addFilter(RepeatedLines("aiokafka", SystemClock()))
    tune_gc()
    with group_member(settings) as instance_id:
        _check_topics(settings)
        asyncio.run(_run(settings, instance_id))


class RepeatedLines(logging.Filter):
    """Passes one line of each text every ten seconds: without its broker aiokafka writes 180 lines a second.

    Texts count as equal that differ in their arguments only. The line that passes says how many were left out.

    Args:
        name: only lines of this logger, and of those below it, are left out.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        super().__init__(name)
        self._clock = clock
        self._passed: dict[tuple[str, int, str], tuple[int, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write the line."""
        if not super().filter(record):
            return True
        key, now = (record.name, record.levelno, str(record.msg)), self._clock.now_unix_nano()
        passed, left_out = self._passed.get(key, (None, 0))
        if passed is not None and now - passed < REPEATED_LINE_INTERVAL_S * NANOS_PER_SECOND:
            self._passed[key] = passed, left_out + 1
            return False
        self._passed[key] = now, 0
        if left_out:
            record.msg, record.args = f"{record.getMessage()} ({left_out} more like this left out)", ()
        return True


def _check_topics(settings: Settings) -> None:
    """Check that the worker's topics are there and fit together. Blocking; changes nothing.

    Raises:
        ServiceUnavailableError: the cluster does not answer, or lacks a topic.
        TopicMismatchError: topics that must have equal numbers of partitions have not, so that partition p of one
            would not hold the same rollouts as partition p of the other.
    """
    _, cluster = connected(settings)
    found = cluster.topics
    for topic in (ROLLOUT_EVENTS, ROLLOUTS, SPANS, TRAJECTORIES, DEAD_LETTERS):
        name = topic.full_name(settings.topic_prefix)
        if name not in found:
            raise ServiceUnavailableError(
                f"the cluster has no topic {name!r}.", next_step="Create them with `lightstream topics create`."
            )
    wanted = len(found[ROLLOUT_EVENTS.full_name(settings.topic_prefix)].partitions)
    for topic in (ROLLOUTS, SPANS):
        name = topic.full_name(settings.topic_prefix)
        partitions = len(found[name].partitions)
        if partitions != wanted:
            raise TopicMismatchError(name, {"partitions": (f"{wanted}, as rollout-events has", str(partitions))})


async def _run(settings: Settings, instance_id: str | None) -> None:
    stop_requested = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop_requested.set)
    app = make_app(settings, instance_id)
    codec = codec_for(settings)
    publisher = KafkaPublisher(settings, codec=codec, linger_ms=LINGER_MS)
    quick_publisher = KafkaPublisher(settings, codec=codec, linger_ms=LINGER_MS, compression="lz4")
    clock = SystemClock()
    context = WorkerContext(settings, publisher, codec, clock, group_id(settings))
    of_life_cycle = replace(context, publisher=quick_publisher)
    processors = Processors(
        app,
        settings,
        Watchdog(settings, clock),
        {ROLLOUT_EVENTS: partial(LifecycleHandler, of_life_cycle), SPANS: partial(AssemblerHandler, context)},
    )
    health = _health_server(settings, processors)
    stop: asyncio.Task[Any] = asyncio.create_task(stop_requested.wait())
    started: asyncio.Task[Any] = asyncio.create_task(_start_and_wait(app))
    ready: asyncio.Task[Any] = asyncio.create_task(processors.ready.wait())
    ends: list[asyncio.Future[Any]] = [stop, started, processors.failed]
    sweeping = asyncio.create_task(sweep_for_ever(settings, group_id(settings), clock))
    processors.start()
    await asyncio.wait([ready, *ends], return_when=asyncio.FIRST_COMPLETED)
    if ready.done():
        await asyncio.to_thread(health.start)  # which announces the worker
        logger.info("ready")
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    error = _error(app, processors, started)
    if error is not None:
        logger.error("stopping: %s", error)
    guard = threading.Timer(STOP_TIMEOUT_S, _end_hard)
    guard.daemon = True
    guard.start()
    await asyncio.to_thread(health.stop)
    try:
        await processors.stop(commit=error is None)
    finally:
        await app.stop()  # else its tasks, which restart each other, never end
    for each in (publisher, quick_publisher):
        each.close(timeout_s=0.0)
    for task in (stop, started, ready, sweeping):
        task.cancel()
    guard.cancel()
    if error is None:
        logger.info("stopped")
        return
    if isinstance(error, LightstreamError):
        raise error
    if isinstance(error, TopicAuthorizationFailedError):
        topics = ", ".join(map(repr, error.args))
        raise ServiceUnavailableError(
            f"topic {topics} cannot be read: the cluster does not allow it.",
            next_step=grant_step(topics, kafka_user(settings)),
        ) from error
    raise kafka_unavailable(repr(error), what="the worker lost Kafka or failed") from error


def _health_server(settings: Settings, processors: Processors) -> HttpServer:
    """A server, in a thread of its own, that tells whether this event loop turns and how far the worker lags."""
    alive, kafka = LoopTurns(asyncio.get_running_loop()), KafkaContact(settings)

    def room() -> str | None:
        reason = processors.room()
        return None if reason is None else f"the worker takes no records: {reason}"

    def lag() -> str | None:
        try:
            records = processors.lag_records(kafka)
        except ServiceUnavailableError as error:
            return str(error)
        lag_max = settings.ready_lag_records_max
        return f"the worker is {records:,} records behind the log (over {lag_max:,})" if records > lag_max else None

    def metrics() -> Iterable[Metric]:
        unread = GaugeMetricFamily("lightstream_worker_unread_records", "Records that wait for a newer version.")
        unread.add_metric([], processors.unread().total())
        records = GaugeMetricFamily("lightstream_worker_lag_records", "Records of its partitions not taken up yet.")
        try:
            records.add_metric([], processors.lag_records(kafka))
        except ServiceUnavailableError:
            return [unread]
        return [records, unread]

    return HttpServer(
        Starlette(),
        settings,
        name=SERVICE_NAME,
        port=settings.worker_port,
        setting="LIGHTSTREAM_WORKER_PORT",
        alive=alive,
        ready=[room, kafka, lag, lambda: unread_reason(processors.unread())],
        metrics=[metrics],
    )


async def _start_and_wait(app: faust.App) -> None:
    await app.start()
    await app.wait_until_stopped()


def _error(app: faust.App, processors: Processors, started: asyncio.Task[Any]) -> BaseException | None:
    if processors.failed.done():
        return processors.failed.result()
    if started.done() and not started.cancelled():
        return started.exception() or app.crash_reason or RuntimeError("the Faust application stopped by itself")
    return None


def _end_hard() -> None:
    logger.critical("did not stop within %g s; ending the process", STOP_TIMEOUT_S)
    os._exit(EXIT_STUCK)
