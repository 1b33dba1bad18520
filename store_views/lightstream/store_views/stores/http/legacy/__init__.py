"""Agent Lightning's first protocol, for agents and algorithms that still speak it: a thin face on any store.

    GET  /task                 the next rollout of the queue, as a task; ``timeout_s`` waits for one (an extension)
    GET  /resources/latest     404 where there are none
    GET  /resources/{id}       404 where there are none of that id
    POST /rollout              what became of a task: its spans are kept, then its attempt succeeds

Every store server answers these in addition to its own routes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightstream.runtime.lazy import lazy_names

if TYPE_CHECKING:
    from .client import AgentLightningClient
    from .server import AgentLightningServer

__all__ = ["AgentLightningClient", "AgentLightningServer"]

__getattr__, __dir__ = lazy_names(__name__, {"AgentLightningClient": "client", "AgentLightningServer": "server"})
