"""Sinks of ended spans: their interface, and the one that writes into a store."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from queue import SimpleQueue
from typing import Protocol

from opentelemetry import context as otel_context
from opentelemetry.sdk.trace import ReadableSpan

from lightstream.schemas.errors import LightstreamError, PublishError
from lightstream.schemas.interfaces import LightningStore

from ..context import AttemptRef


class SpanSink(Protocol):
    """Takes ended spans at once, and makes them durable in the background. Thread-safe."""

    def submit(self, span: ReadableSpan, attempt: AttemptRef | None = None) -> bool:
        """Hand one over; returns at once. ``False``: it was rejected."""
        ...

    def flush(self, attempt: AttemptRef | None = None) -> None:
        """Wait until the spans that were handed over (of ``attempt``, or all) are durable.

        Raises:
            PublishError: some of it is lost or still on its way.
        """
        ...

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """As :meth:`flush`: ``False``, and a logged error, instead of an exception."""
        ...

    def shutdown(self) -> None:
        """Flush, then stop."""
        ...


logger = logging.getLogger(__name__)

WAITING_MAX = 8192
"""Spans that may wait for the store; beyond, they are rejected and the next flush says so."""

FLUSH_TIMEOUT_S = 30.0
"""A store that does not answer for this long counts as unavailable."""


class StoreSpanSink:
    """One daemon thread that adds spans to a store, in their order. See ``SpanSink``.

    Spans of no attempt have no place in a store; they are left to ``get_last_trace()`` and the application's own
    exporters.
    """

    def __init__(self, store: LightningStore) -> None:
        self.store = store
        self._queue: SimpleQueue[tuple[ReadableSpan, AttemptRef] | None] = SimpleQueue()
        self._settled = threading.Condition()
        self._waiting: Counter[AttemptRef] = Counter()
        self._lost: dict[AttemptRef, list[str]] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, span: ReadableSpan, attempt: AttemptRef | None = None) -> bool:
        if attempt is None:
            return True
        with self._settled:
            waiting = self._waiting.total()
            if self._closed or waiting >= WAITING_MAX:
                why = "its tracer was closed" if self._closed else f"{waiting} wait for the store"
                self._lost.setdefault(attempt, []).append(f"{span.name!r} was rejected: {why}")
                return False
            self._waiting[attempt] += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lightstream-store-spans", daemon=True)
                self._thread.start()
        self._queue.put((span, attempt))
        return True

    def flush(self, attempt: AttemptRef | None = None, *, timeout_s: float = FLUSH_TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        with self._settled:
            while remaining := (self._waiting.total() if attempt is None else self._waiting[attempt]):
                if not self._settled.wait(deadline - time.monotonic()):
                    break
            lost = [why for who in ([attempt] if attempt else list(self._lost)) for why in self._lost.pop(who, [])]
        if remaining:
            lost.append(f"{remaining} were not accepted within {timeout_s:g} s")
        if lost:
            raise PublishError(
                f"spans are missing from the store ({type(self.store).__name__}): {'; '.join(lost[:3])}."
            )

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        try:
            self.flush(timeout_s=timeout_millis / 1000)
        except PublishError as error:
            logger.error("%s", error)
            return False
        return True

    def shutdown(self) -> None:
        """Flush, then stop; the store stays open."""
        self.force_flush()
        with self._settled:
            self._closed = True
        self._queue.put(None)

    def _run(self) -> None:
        otel_context.attach(otel_context.Context())  # spans of the store's own client belong to no attempt
        with asyncio.Runner() as runner:
            while (entry := self._queue.get()) is not None:
                span, attempt = entry
                problem: str | None = None
                try:
                    runner.run(self.store.add_otel_span(attempt.rollout_id, attempt.attempt_id, span))
                except LightstreamError as error:
                    problem = f"{span.name!r}: {error}"
                except Exception as error:  # noqa: BLE001  # the store may be anyone's; the next flush raises it
                    problem = f"{span.name!r}: {type(error).__name__}: {error}"
                with self._settled:
                    self._waiting[attempt] -= 1
                    if not self._waiting[attempt]:
                        del self._waiting[attempt]
                    if problem is not None:
                        self._lost.setdefault(attempt, []).append(problem)
                    self._settled.notify_all()
