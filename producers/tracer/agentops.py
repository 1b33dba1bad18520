"""A tracer on AgentOps: its decorators, traces and callbacks, its spans into our log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from lightstream.runtime.settings import Settings
from lightstream.schemas.interfaces import LightningStore

from ..context import AttemptRef
from ..exporter import KafkaSpanExporter
from ..instrumentation import Instrumentor, instrument, uninstrument
from .optional import import_optional
from .otel import OtelTracer

logger = logging.getLogger(__name__)

_PROVIDERS = "agentops.instrumentation.providers"
OWN = {
    "anthropic": Instrumentor("anthropic", "anthropic", f"{_PROVIDERS}.anthropic", "AnthropicInstrumentor", "agentops"),
    "openai": Instrumentor("openai", "openai", f"{_PROVIDERS}.openai", "OpenaiInstrumentor", "agentops"),
}
"""AgentOps' instrumentors, whose spans have its names and ``gen_ai.*`` attributes."""


class AgentOpsTracer(OtelTracer):
    """As :class:`OtelTracer`, with a trace of AgentOps around each trace context.

    Nothing is sent to AgentOps' service: its core is given this process's provider, and its exporters
    are never started. Needs the package ``agentops``.

    Args:
        agentops_managed: ``False`` where the application calls ``agentops.init`` itself, before this is made; then its
            spans go to AgentOps's service as well.
        instrument_managed: :func:`~lightstream.producers.instrument` in each worker, and undo it at the end.
        daemon: accepted for compatibility with Agent Lightning; there is no server to run.
        settings, exporter: see :class:`OtelTracer`.

    Raises:
        SettingsError: ``agentops`` is not installed; also as :class:`OtelTracer`.
    """

    def __init__(
        self,
        *,
        agentops_managed: bool = True,
        instrument_managed: bool = True,
        daemon: bool = True,
        settings: Settings | None = None,
        exporter: KafkaSpanExporter | None = None,
    ) -> None:
        self._agentops = import_optional("agentops", package="agentops", needed_by="AgentOpsTracer")
        super().__init__(settings, exporter=exporter)
        self.agentops_managed = agentops_managed
        self.instrument_managed = instrument_managed
        self.daemon = daemon
        self._give_provider()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_agentops"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._agentops = import_optional("agentops", package="agentops", needed_by="AgentOpsTracer")
        super().__setstate__(state)
        self._give_provider()

    def _give_provider(self) -> None:
        """Let AgentOps use this process's provider, unless the application started AgentOps itself."""
        if self.agentops_managed:
            core = import_optional("agentops.sdk.core", package="agentops", needed_by="AgentOpsTracer").tracer
            if not core.initialized:
                core.provider, core._config, core._initialized = self._provider, {}, True

    def init_worker(self, worker_id: int, store: LightningStore | None = None, *args: Any, **kwargs: Any) -> None:
        super().init_worker(worker_id, store)
        if self.instrument_managed:
            self.instrument(worker_id)

    def teardown_worker(self, worker_id: int, *args: Any, **kwargs: Any) -> None:
        super().teardown_worker(worker_id)
        if self.instrument_managed:
            self.uninstrument(worker_id)

    def instrument(self, worker_id: int) -> None:
        """Switch on every instrumentor that is installed; AgentOps' own for the libraries of model providers."""
        logger.info("worker %d: %s are instrumented.", worker_id, ", ".join(instrument(instead=OWN)) or "no libraries")

    def uninstrument(self, worker_id: int) -> None:
        """Switch them off."""
        uninstrument()

    def get_langchain_handler(self, tags: Sequence[str] | None = None) -> Any:
        """AgentOps's callback handler for LangChain."""
        module = "agentops.integration.callbacks.langchain"
        callbacks = import_optional(module, package="agentops", needed_by="AgentOpsTracer.get_langchain_handler")
        return callbacks.LangchainCallbackHandler(tags=list(tags or []))

    get_langchain_callback_handler = get_langchain_handler

    def _enclosing(
        self, name: str | None, attempt: AttemptRef | None
    ) -> Callable[[], AbstractContextManager[object]] | None:
        title = name or (attempt.rollout_id if attempt is not None else None)
        return lambda: self._agentops_trace(title)

    @contextmanager
    def _agentops_trace(self, title: str | None) -> Generator[None]:
        opened = self._agentops.start_trace(**({} if title is None else {"trace_name": title}))
        outcome = "Success"
        try:
            yield
        except BaseException:
            outcome = "Error"
            raise
        finally:
            self._agentops.end_trace(opened, end_state=outcome)
