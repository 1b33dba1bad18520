"""The LLM proxy as a process."""

from __future__ import annotations

import ipaddress
import logging

from lightstream.schemas.http_server import HttpServer
from lightstream.schemas.kafka import KafkaPublisher, bootstrap_servers
from lightstream.schemas.settings import Settings

from .access import Access
from .app import create_app
from .litellm_upstream import LiteLlmUpstream
from .openai_upstream import OpenAiUpstream
from .upstream import Upstream

__all__ = ["llm_proxy", "proxy_server", "run", "upstream_of"]

logger = logging.getLogger(__name__)

LINGER_MS = 0.0
"""An agent waits for each record: batches are what gathers while the last one is on its way."""


def run(settings: Settings) -> None:
    """Serve until SIGTERM or Ctrl-C; announced as ``proxy``.

    Raises:
        ServiceUnavailableError: the port is taken, or no Kafka is named or running.
    """
    llm_proxy(settings).run()


def llm_proxy(settings: Settings) -> HttpServer:
    """As :func:`run`, but returns the server before it starts."""
    return proxy_server(settings, upstream_of(settings))


def proxy_server(settings: Settings, upstream: Upstream) -> HttpServer:
    """A proxy before any upstream.

    Raises:
        ServiceUnavailableError: the port is taken, or no Kafka is named or running.
    """
    bootstrap_servers(settings)  # says now, rather than at the first call, that there is no Kafka
    if Access(settings).is_open and not _is_loopback(settings.host):
        logger.warning("the LLM proxy on %s answers anyone: set LIGHTSTREAM_PROXY_TOKEN", settings.host)
    publisher = KafkaPublisher(settings, linger_ms=LINGER_MS)
    app = create_app(settings, upstream, publisher, stop=publisher.close)
    return HttpServer(app, settings, name="proxy", port=settings.proxy_port, setting="LIGHTSTREAM_PROXY_PORT")


def upstream_of(settings: Settings) -> Upstream:
    """The back end that ``settings.llm_backend`` names."""
    return LiteLlmUpstream(settings) if settings.llm_backend == "litellm" else OpenAiUpstream(settings)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
