"""The store over HTTP: a server over any store, a client for processes that reach no Kafka.

Routes, bodies and status codes are those of Agent Lightning 0.3 (``/v1/agl/…``); what goes beyond are optional fields
and the routes that :mod:`._routes` marks as extensions. Client and server are imported at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightstream.schemas.lazy import lazy_names

if TYPE_CHECKING:
    from .app import create_app
    from .client import LightningStoreClient
    from .server import LightningStoreServer, run

__all__ = ["LightningStoreClient", "LightningStoreServer", "create_app", "run"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {"LightningStoreClient": "client", "LightningStoreServer": "server", "create_app": "app", "run": "server"},
)
