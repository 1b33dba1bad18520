"""The LLM proxy as a process, and as an object in your own process with Agent Lightning's interface."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from lightstream.runtime.health import Check
from lightstream.runtime.http.own_tokens import token_of
from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.kafka import KafkaContact, KafkaPublisher, Publisher, bootstrap_servers
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import LLM, ProxyLLM

from .app import create_app, proxy_access
from .balancing_upstream import BalancingUpstream
from .litellm_upstream import LiteLlmUpstream
from .model_list import ModelConfig, back_ends_of
from .openai_upstream import OpenAiUpstream
from .releases import Releases
from .upstream import Upstream

LINGER_MS = 0.0
"""An agent waits for each record, so none lingers: a batch is made of the records that came while one was sent."""


def run(settings: Settings) -> None:
    """Serve until SIGTERM or Ctrl-C; announced as ``proxy``.

    Raises:
        ServiceUnavailableError: the port is taken, or no Kafka is named or running.
    """
    llm_proxy(settings).run()


def llm_proxy(settings: Settings) -> HttpServer:
    """As :func:`run`, but returns the server before it starts."""
    return proxy_server(settings, upstream_of(settings))


def proxy_server(
    settings: Settings,
    upstream: Upstream,
    publisher: Publisher | None = None,
    *,
    announced: bool = True,
    gives_ids: bool = False,
) -> HttpServer:
    """A proxy before any upstream.

    Args:
        publisher: where calls are recorded; by default Kafka.
        announced: whether it is found as ``proxy``.
        gives_ids: answers carry their token ids also to agents that do not ask for them.

    Raises:
        ServiceUnavailableError: the port is taken, or no Kafka is named or running where it is needed.
    """
    proxy_access(settings).require_token(settings, "LLM proxy", "LIGHTSTREAM_PROXY_TOKEN")
    ready: list[Check] = []
    if publisher is not None:
        app = create_app(settings, upstream, publisher, gives_ids=gives_ids)
    else:
        bootstrap_servers(settings)  # says now, rather than at the first call, that there is no Kafka
        kafka = KafkaPublisher(settings, linger_ms=LINGER_MS)
        releases = Releases(settings)
        app = create_app(settings, upstream, kafka, stop=kafka.close, gives_ids=gives_ids, releases=releases)
        ready = [KafkaContact(settings), releases.unready]
    return HttpServer(
        app,
        settings,
        name="proxy",
        port=settings.proxy_port,
        setting="LIGHTSTREAM_PROXY_PORT",
        ready=ready,
        announced=announced,
    )


def upstream_of(settings: Settings) -> Upstream:
    """The back end that ``settings.llm_backend`` names."""
    return LiteLlmUpstream(settings) if settings.llm_backend == "litellm" else OpenAiUpstream(settings)


class LLMProxy:
    """Serves a list of models from a thread of this process and records each call in the log.

    Unlike Agent Lightning's it need not be restarted for a new list: the next call goes to the new back ends,
    calls in progress end with theirs. Nobody finds it by the name ``proxy``, which is that of ``lightstream proxy``.

    Args:
        port, host: where to listen; by default as the settings say. Port 0 is any free one.
        model_list: LiteLLM's ``model_list``; entries with the same ``model_name`` share its calls.
        store: kept for :meth:`get_store`. Calls are recorded in the log that the settings name; stores read it.
        litellm_config: LiteLLM's configuration, of which ``litellm_settings.num_retries`` and ``model_list`` are read.
        num_retries: how often a failing call is retried, at another back end of that name where there is one;
            recorded once, however the tries ended.
        settings: also name the log, limits and the required token; by default those of the environment.

    Raises:
        SettingsError: the list is not a model list, or ``litellm_config`` has keys that are not supported.
    """

    def __init__(
        self,
        port: int | None = None,
        model_list: Sequence[ModelConfig | Mapping[str, Any]] | None = None,
        store: LightningStore | None = None,
        host: str | None = None,
        litellm_config: Mapping[str, Any] | None = None,
        num_retries: int = 0,
        *,
        settings: Settings | None = None,
    ) -> None:
        config = dict(litellm_config or {})
        listed = config.pop("model_list", [])
        retries = dict(config.pop("litellm_settings", {}))
        self._num_retries = int(retries.pop("num_retries", num_retries))
        if config or retries:
            raise SettingsError(
                f"litellm_config has {', '.join([*config, *retries])}, which this proxy does not read.",
                next_step="It takes model_list and litellm_settings.num_retries.",
            )
        settings = settings or Settings.load()
        changes = {"proxy_port": port, "host": host}
        self._settings = settings.model_copy(update={name: to for name, to in changes.items() if to is not None})
        self._store = store
        self.model_list: list[Mapping[str, Any]] = list(model_list if model_list is not None else listed)
        back_ends_of(self.model_list)
        self._upstream: BalancingUpstream | None = None
        self._server: HttpServer | None = None

    @property
    def endpoint(self) -> str:
        """URL of the server, without a path.

        Raises:
            RuntimeError: it is not running.
        """
        if self._server is None:
            raise RuntimeError("the LLM proxy is not running: await start() first")
        return self._server.url

    def get_store(self) -> LightningStore | None:
        """The store that it was given."""
        return self._store

    def set_store(self, store: LightningStore) -> None:
        """Keep a store."""
        self._store = store

    def update_model_list(self, model_list: Sequence[ModelConfig | Mapping[str, Any]]) -> None:
        """Use these back ends from the next call on; no call is dropped and nothing restarts.

        Raises:
            SettingsError: the list is not a model list; nothing changed.
        """
        back_ends_of(model_list)
        self.model_list = list(model_list)
        if self._upstream is not None:
            self._upstream.replace(self.model_list)

    async def start(self) -> None:
        """Serve; returns once requests are accepted. Does nothing if it serves already.

        Raises:
            ServiceUnavailableError: the port is taken, or no Kafka is named or running.
        """
        if self._server is not None:
            return
        upstream = BalancingUpstream(self._settings, self.model_list, num_retries=self._num_retries)
        server = self._new_server(upstream)
        await asyncio.to_thread(server.start)
        self._upstream, self._server = upstream, server

    def _new_server(self, upstream: Upstream) -> HttpServer:
        """The server of the next start."""
        return proxy_server(self._settings, upstream, announced=False)

    async def stop(self) -> None:
        """Stop, once the calls in progress are answered (at most 10 s). Does nothing if it does not serve."""
        server, self._server, self._upstream = self._server, None, None
        if server is not None:
            await asyncio.to_thread(server.stop)

    async def restart(self) -> None:
        """:meth:`stop` and :meth:`start`. Not needed for a new list of models."""
        await self.stop()
        await self.start()

    def is_running(self) -> bool:
        """True while it serves."""
        return self._server is not None

    def as_resource(
        self,
        rollout_id: str | None = None,
        attempt_id: str | None = None,
        model: str | None = None,
        sampling_parameters: Mapping[str, Any] | None = None,
    ) -> LLM:
        """The resource that agents get: bound to an attempt, or one that each Runner binds to its own.

        Args:
            model: name to ask for; by default the only one that the list has.

        Raises:
            ValueError: only one of the two ids is given, or no model where the list has none or several.
            RuntimeError: it is not running.
        """
        if (rollout_id is None) != (attempt_id is None):
            raise ValueError("give both rollout_id and attempt_id, or neither")
        names = list(dict.fromkeys(str(entry["model_name"]) for entry in self.model_list))
        if model is None and len(names) != 1:
            raise ValueError(f"model is needed: the list has {', '.join(names) or 'none'}")
        resource = ProxyLLM(
            endpoint=f"{self.endpoint}/v1",
            model=model or names[0],
            api_key=token_of(self._settings, "proxy_token"),
            sampling_parameters=dict(sampling_parameters or {}),
        )
        if rollout_id is None:
            return resource
        values = resource.model_dump(exclude={"resource_type", "endpoint"})
        return LLM(endpoint=resource.get_base_url(rollout_id, attempt_id), **values)
