"""The worker process: start, announce, stop on a signal, and end with an error rather than stand still."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import faust

from lightstream.runtime.clock import SystemClock
from lightstream.runtime.gc_tuning import tune_gc
from lightstream.runtime.kafka import KafkaPublisher, kafka_unavailable
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.services import Service, announce, withdraw
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError
from lightstream.schemas.topics import ROLLOUT_EVENTS, SPANS

from .app import group_id, make_app
from .assembler_handler import AssemblerHandler
from .context import WorkerContext
from .large_record_sweep import sweep_for_ever
from .lifecycle_handler import LifecycleHandler
from .log_throttle import throttled
from .membership import Membership
from .processors import Processors
from .stop_request import StopRequest
from .topic_check import check_topics
from .watchdog import Watchdog

__all__ = ["run"]

logger = logging.getLogger(__name__)

SERVICE_NAME = "worker"

LINGER_MS = 0.0
"""Records of a batch are handed over in a row (:class:`Outbox`) and share requests without a wait: librdkafka counts
lingers in whole milliseconds, and any but none cost each of a rollout's records 1.2 ms. The life cycle's are small and
few at a time: zstd costs more there than it saves, lz4 next to nothing."""

STOP_TIMEOUT_S = 20.0
"""A stop that takes longer (a thread of the Kafka client that never returns) ends the process the hard way."""

EXIT_STUCK = 70
"""Exit code then: EX_SOFTWARE of sysexits.h. What was not committed is read again."""


def run(settings: Settings) -> None:
    """Run the worker until SIGTERM or SIGINT. Blocking; call it in the main thread.

    Raises:
        ServiceUnavailableError: Kafka cannot be reached, lacks our topics, or was lost for longer than clients wait.
        TopicMismatchError: topics that belong together have different numbers of partitions.
        LightstreamError: a processor failed. Its unfinished work was not committed: restart the worker.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for noisy in ("faust", "mode", "aiokafka"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    tune_gc()
    stop = StopRequest()
    with throttled("aiokafka"), stop.listening(), closing(Membership(settings)) as membership:
        check_topics(settings)
        # Faust's consumer thread makes its loop by the policy too.
        asyncio.set_event_loop_policy(_loop_policy())  # pyright: ignore[reportDeprecated]  # from Python 3.14 on
        asyncio.run(_run(settings, membership.instance_id, stop))


def _loop_policy() -> asyncio.AbstractEventLoopPolicy:
    """uvloop's where there is one: the worker takes 11% less of the processor, most of it per fetch."""
    try:
        from .uvloop_policy import Policy
    except ImportError:  # not made for Windows and PyPy
        return asyncio.DefaultEventLoopPolicy()
    return Policy()


async def _run(settings: Settings, instance_id: str | None, stop_request: StopRequest) -> None:
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
    stop: asyncio.Task[Any] = asyncio.create_task(stop_request.wait())
    started: asyncio.Task[Any] = asyncio.create_task(_start_and_wait(app))
    ready: asyncio.Task[Any] = asyncio.create_task(processors.ready.wait())
    ends: list[asyncio.Future[Any]] = [stop, started, processors.failed]
    sweeping = asyncio.create_task(sweep_for_ever(settings, group_id(settings), clock))
    processors.start()
    await asyncio.wait([ready, *ends], return_when=asyncio.FIRST_COMPLETED)
    if ready.done():
        announce(settings, Service(SERVICE_NAME, "", os.getpid(), time.time_ns()))
        logger.info("ready")
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    error = _error(app, processors, started)
    if error is not None:
        logger.error("stopping: %s", error)
    guard = threading.Timer(STOP_TIMEOUT_S, _end_hard)
    guard.daemon = True
    guard.start()
    withdraw(settings, SERVICE_NAME, os.getpid())
    await processors.stop()
    await app.stop()
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
    raise kafka_unavailable(repr(error), what="the worker lost Kafka or failed") from error


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
