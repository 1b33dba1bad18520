"""The interface of tracers."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, Protocol

from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import Attributes, Span, SpanCoreFields, SpanRecordingContext, TraceStatus

from ..worker_base import ParallelWorkerBase

logger = logging.getLogger(__name__)


class TraceContextManager(Protocol):
    """For ``with`` and for ``async with``. Use once."""

    def __enter__(self) -> Any: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

    async def __aenter__(self) -> Any: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...


class Tracer(ParallelWorkerBase):
    """Records operations inside :meth:`trace_context` as spans of one attempt.

    Any number of trace contexts may run at once in one process; each has its own spans.
    """

    _store: LightningStore | None = None

    def init_worker(self, worker_id: int, store: LightningStore | None = None, *args: Any, **kwargs: Any) -> None:
        """Set up in a worker. Spans of attempts go to ``store``, where one is given."""
        super().init_worker(worker_id)
        self._store = store

    def trace_context(
        self,
        name: str | None = None,
        *,
        store: LightningStore | None = None,
        rollout_id: str | None = None,
        attempt_id: str | None = None,
    ) -> TraceContextManager:
        """Everything that runs inside, tasks and copied contexts included, belongs to one attempt."""
        raise NotImplementedError(f"{type(self).__name__} traces nothing")

    def get_last_trace(self) -> list[Span]:
        """The spans of the running trace context, or of the last one that the caller's context left."""
        raise NotImplementedError(f"{type(self).__name__} keeps no spans")

    def create_span(
        self,
        name: str,
        attributes: Attributes | None = None,
        timestamp: float | None = None,
        status: TraceStatus | None = None,
    ) -> SpanCoreFields:
        """Make a span that starts and ends at once, now or at ``timestamp`` (seconds since 1970)."""
        raise NotImplementedError(f"{type(self).__name__} makes no spans")

    def operation_context(
        self,
        name: str,
        attributes: Attributes | None = None,
        start_time: float | None = None,
        end_time: float | None = None,
    ) -> AbstractContextManager[SpanRecordingContext]:
        """A span around the operations inside. An exception becomes its status and propagates."""
        raise NotImplementedError(f"{type(self).__name__} makes no spans")

    def trace_run(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call ``func`` in a trace context of its name."""
        with self.trace_context(name=getattr(func, "__name__", type(func).__name__)):
            return func(*args, **kwargs)

    async def trace_run_async(self, func: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        """As :meth:`trace_run`, for coroutines."""
        async with self.trace_context(name=getattr(func, "__name__", type(func).__name__)):
            return await func(*args, **kwargs)

    def get_langchain_handler(self) -> Any:
        """A callback handler for LangChain, or ``None``: instrumentation sees LangChain without one."""
        logger.warning(
            "%s has no LangChain callback handler; instrument(['langchain']) needs none.", type(self).__name__
        )
        return None

    @contextmanager
    def lifespan(self, store: LightningStore | None = None) -> Generator[None]:
        """Set up as in a worker, and taken down at the end."""
        self.init()
        try:
            self.init_worker(0, store)
            try:
                yield
            finally:
                self.teardown_worker(0)
        finally:
            self.teardown()
