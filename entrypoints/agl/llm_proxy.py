"""The LLM proxy, with Agent Lightning 0.3's arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lightstream.producers import LLMProxy as Proxy
from lightstream.producers.llm_proxy.model_list import ModelConfig
from lightstream.producers.llm_proxy.server import proxy_server
from lightstream.producers.llm_proxy.upstream import Upstream
from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.settings import Settings
from lightstream.schemas.interfaces import LightningStore

from ._arguments import refuse
from ._store_spans import StorePublisher, store_for_spans

__all__ = ["LLMProxy", "ModelConfig"]

INSTEAD = {
    "callbacks": "Each call is recorded with its token ids and log-probabilities: leave it out, or name opentelemetry, "
    "return_token_ids and logprobs, which is what it does.",
    "launch_mode": "A thread serves: leave it out, or 'thread'.",
    "launcher_args": "Give host and port.",
    "middlewares": "Rollout and attempt are found automatically: leave it out.",
    "num_workers": "A thread serves: leave it out, or 1.",
}


CALLBACKS = {"opentelemetry", "return_token_ids", "logprobs"}
"""Agent Lightning's own, all of which this proxy does always."""


class LLMProxy(Proxy):
    """As ``lightstream.producers.LLMProxy``, with Agent Lightning 0.3's arguments.

    Calls are recorded in the store, without Kafka, unless it is Kafka's or none was given; each as two spans there,
    ours and below it LiteLLM's ``raw_gen_ai_request``. Answers carry their token ids where the model server tells them:
    ``prompt_token_ids``, and ``provider_specific_fields.token_ids`` of each choice (of whole answers; in streams vLLM's
    own ``token_ids``).

    Args:
        port, model_list, store, host, litellm_config, num_retries, settings: of the base class.
        num_workers, launch_mode: 1, ``thread``.
        callbacks: Agent Lightning's own names, without effect.
        others: not here.

    Raises:
        SettingsError: one of ``others``, or another mode or number was given; also as the base class.
    """

    def __init__(
        self,
        port: int | None = None,
        model_list: Sequence[ModelConfig | Mapping[str, Any]] | None = None,
        store: LightningStore | None = None,
        host: str | None = None,
        litellm_config: Mapping[str, Any] | None = None,
        num_retries: int = 0,
        num_workers: int = 1,
        launch_mode: str = "thread",
        *,
        callbacks: Sequence[Any] | None = None,
        settings: Settings | None = None,
        **others: Any,
    ) -> None:
        mode = None if launch_mode == "thread" else launch_mode
        workers = None if num_workers == 1 else num_workers
        further = [callback for callback in callbacks or () if callback not in CALLBACKS] or None
        refuse("LLMProxy", {"launch_mode": mode, "num_workers": workers, "callbacks": further} | others, INSTEAD)
        super().__init__(port, model_list, store, host, litellm_config, num_retries, settings=settings)

    def _new_server(self, upstream: Upstream) -> HttpServer:
        into = None if self._store is None else store_for_spans(self._store)
        publisher = None if into is None else StorePublisher(into)
        return proxy_server(self._settings, upstream, publisher, announced=False, gives_ids=True)
