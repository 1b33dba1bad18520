"""The store over HTTP: a server over any store, a client for processes that reach no Kafka.

Routes, bodies and status codes are those of Agent Lightning 0.3 (``/v1/agl/…``); what goes beyond are optional fields
and the routes that :mod:`._routes` marks as extensions. An installed package adds routes by an entry point of the group
:data:`ROUTES_GROUP`, which names a list of Starlette's routes; the route classes here make such. Everything is imported
at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightstream.runtime.lazy import lazy_names

if TYPE_CHECKING:
    from ._connection import Connection
    from ._route import Dispatched, DispatchRoute, Parsed, Served, Store, StoreRoute, WriteRoute
    from ._routes import Seconds, dequeue
    from ._wire import WAIT_S_MAX, path_segment
    from .app import ROUTES_GROUP, TracesEndpoint, create_app
    from .client import LightningStoreClient
    from .server import LightningStoreServer, MakePages, MakeTraces, Pages, run

__all__ = [
    "ROUTES_GROUP",
    "WAIT_S_MAX",
    "Connection",
    "DispatchRoute",
    "Dispatched",
    "LightningStoreClient",
    "LightningStoreServer",
    "MakePages",
    "MakeTraces",
    "Pages",
    "Parsed",
    "Seconds",
    "Served",
    "Store",
    "StoreRoute",
    "TracesEndpoint",
    "WriteRoute",
    "create_app",
    "dequeue",
    "path_segment",
    "run",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ROUTES_GROUP": "app",
        "WAIT_S_MAX": "_wire",
        "Parsed": "_route",
        "Connection": "_connection",
        "DispatchRoute": "_route",
        "Dispatched": "_route",
        "LightningStoreClient": "client",
        "LightningStoreServer": "server",
        "MakePages": "server",
        "MakeTraces": "server",
        "Pages": "server",
        "Seconds": "_routes",
        "Served": "_route",
        "Store": "_route",
        "StoreRoute": "_route",
        "TracesEndpoint": "app",
        "WriteRoute": "_route",
        "create_app": "app",
        "dequeue": "_routes",
        "path_segment": "_wire",
        "run": "server",
    },
)
