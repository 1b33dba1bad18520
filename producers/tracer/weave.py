"""A tracer on Weave: its operations (``weave.op``) as spans in our log."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace

from lightstream.runtime.settings import Settings
from lightstream.schemas.interfaces import LightningStore

from .. import semconv
from ..attributes import flatten_attributes, format_exception_attributes, sanitize_attributes
from ..context import AttemptRef
from ..exporter import KafkaSpanExporter
from ..instrumentation import instrument, uninstrument
from .optional import import_optional
from .otel import OtelTracer
from .trace_context import TraceContext

ENTITY, PROJECT = "lightstream", "lightstream"
DIGEST = "0" * 43
"""Of whatever Weave would store: nothing is stored, so it identifies nothing."""


class WeaveTracer(OtelTracer):
    """As :class:`OtelTracer`; besides, each call of a Weave operation is a span where it happens.

    Needs the package ``weave``. The attributes of such a span are the call's own, and its name, inputs and output as
    ``agentlightning.operation.…``.

    Args:
        project_name: shown by Weave; nothing here depends on it.
        weave_user_settings: Weave's settings (its ``UserSettings``); ``None`` leaves them as they are.
        instrument_managed: give the process a Weave client that stores nothing and needs no key, and
            :func:`~lightstream.producers.instrument` what is installed. ``False`` follows the client that the
            application made by ``weave.init``, which still sends to its server.
        settings, exporter: see :class:`OtelTracer`.

    Raises:
        SettingsError: ``weave`` is not installed; also as :class:`OtelTracer`.
    """

    def __init__(
        self,
        *,
        project_name: str | None = None,
        weave_user_settings: Any = None,
        instrument_managed: bool = True,
        settings: Settings | None = None,
        exporter: KafkaSpanExporter | None = None,
    ) -> None:
        self._weave_user_settings = weave_user_settings
        self._import_weave()
        super().__init__(settings, exporter=exporter)
        self.project_name = project_name or PROJECT
        self.instrument_managed = instrument_managed
        self._client: Any = None

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in ("_clients", "_current")} | {
            "_client": None
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._weave_user_settings = state["_weave_user_settings"]
        self._import_weave()
        super().__setstate__(state)

    def _import_weave(self) -> None:
        self._clients = _imported("weave.trace.weave_client")
        self._current = _imported("weave.trace.context.weave_client_context")
        if self._weave_user_settings is not None:
            _imported("weave.trace.settings").parse_and_apply_settings(self._weave_user_settings)

    def init_worker(self, worker_id: int, store: LightningStore | None = None, *args: Any, **kwargs: Any) -> None:
        super().init_worker(worker_id, store)
        if self.instrument_managed:
            self.instrument(worker_id)

    def teardown_worker(self, worker_id: int, *args: Any, **kwargs: Any) -> None:
        super().teardown_worker(worker_id)
        if self.instrument_managed:
            self.uninstrument(worker_id)

    def instrument(self, worker_id: int) -> None:
        """Switch on every instrumentor that is installed."""
        instrument()

    def uninstrument(self, worker_id: int) -> None:
        """Switch them off, and remove our Weave client."""
        uninstrument()
        if self._client is not None and self._current.get_weave_client() is self._client:
            self._current.set_weave_client_global(None)

    def trace_context(
        self,
        name: str | None = None,
        *,
        store: LightningStore | None = None,
        rollout_id: str | None = None,
        attempt_id: str | None = None,
        flush: bool = True,
    ) -> TraceContext:
        client = self._current.get_weave_client()
        if client is None and self.instrument_managed:
            client = self._clients.WeaveClient(ENTITY, self.project_name, _Nowhere(), ensure_project_exists=False)
            self._current.set_weave_client_global(client)
            self._client = client
        if client is not None and not hasattr(client, _FOLLOWED):
            _follow(client, self)
        return super().trace_context(name, store=store, rollout_id=rollout_id, attempt_id=attempt_id, flush=flush)

    def _enclosing(
        self, name: str | None, attempt: AttemptRef | None
    ) -> Callable[[], AbstractContextManager[object]] | None:
        return None if name is None else lambda: self.get_tracer().start_as_current_span(name)


class _Nowhere:
    """The part of Weave's server that its client needs: takes everything and keeps nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name.endswith("_processor"):
            raise AttributeError(name)
        return lambda *_, **__: SimpleNamespace(digest=DIGEST, row_digests=[], id="", trace_id="", object_id="")


_FOLLOWED = "_lightstream_follows"


class _Open:
    """The span of a call that has begun."""

    def __init__(self, span: trace.Span, token: Any) -> None:
        self.span = span
        self.token = token


def _follow(client: Any, tracer: OtelTracer) -> None:
    """Let each call that the client begins and finishes be a span. Both happen where the operation is called."""
    begin, finish = client.create_call, client.finish_call
    opened: dict[str, _Open] = {}

    @functools.wraps(begin)
    def create_call(*args: Any, use_stack: bool = True, **kwargs: Any) -> Any:
        call = begin(*args, use_stack=use_stack, **kwargs)
        own = {key: value for key, value in (call.attributes or {}).items() if key != "weave"}
        inputs = {f"{semconv.AGL_OPERATION_INPUT}.{key}": value for key, value in (call.inputs or {}).items()}
        name = str(call.func_name)
        span = tracer.get_tracer().start_span(
            name, attributes=_attributes({semconv.AGL_OPERATION_NAME: name, **own, **inputs})
        )
        token = otel_context.attach(trace.set_span_in_context(span)) if use_stack else None
        opened[str(call.id)] = _Open(span, token)
        return call

    @functools.wraps(finish)
    def finish_call(
        call: Any, output: Any = None, exception: BaseException | None = None, *args: Any, **kwargs: Any
    ) -> None:
        begun = opened.pop(str(call.id), None)
        if begun is not None:
            if begun.token is not None:
                otel_context.detach(begun.token)
            if output is not None:
                begun.span.set_attributes(_attributes({semconv.AGL_OPERATION_OUTPUT: output}))
            if exception is not None:
                begun.span.set_attributes(format_exception_attributes(exception))
                begun.span.record_exception(exception)
                begun.span.set_status(trace.StatusCode.ERROR, str(exception))
            else:
                begun.span.set_status(trace.StatusCode.OK)
            begun.span.end()
        finish(call, output, exception, *args, **kwargs)

    client.create_call, client.finish_call = create_call, finish_call
    setattr(client, _FOLLOWED, True)


def _attributes(values: Mapping[str, Any]) -> dict[str, Any]:
    return sanitize_attributes(flatten_attributes(values))


def _imported(module: str) -> Any:
    return import_optional(module, package="weave", needed_by="WeaveTracer")
