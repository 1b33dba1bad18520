"""The store over HTTP: a server over any store, a client for processes that reach no Kafka.

Routes, bodies and status codes are those of Agent Lightning 0.3 (``/v1/agl/…``); what goes beyond are optional fields
and the routes that :mod:`._routes` marks as extensions. Agent Lightning's first protocol is in :mod:`.legacy`.
Clients and servers are imported at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightstream.runtime.lazy import lazy_names

if TYPE_CHECKING:
    from .app import TracesEndpoint, create_app
    from .client import LightningStoreClient
    from .legacy.client import AgentLightningClient
    from .legacy.server import AgentLightningServer
    from .server import LightningStoreServer, MakeTraces, run

__all__ = [
    "AgentLightningClient",
    "AgentLightningServer",
    "LightningStoreClient",
    "LightningStoreServer",
    "MakeTraces",
    "TracesEndpoint",
    "create_app",
    "run",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "AgentLightningClient": "legacy.client",
        "AgentLightningServer": "legacy.server",
        "LightningStoreClient": "client",
        "LightningStoreServer": "server",
        "MakeTraces": "server",
        "TracesEndpoint": "app",
        "create_app": "app",
        "run": "server",
    },
)
