"""Agent Lightning's 0.3 interface: ``import lightstream.agl as agl`` in place of ``agentlightning``.

Nothing is imported until it is used. The modules that people import from are modules here too
(``lightstream.agl.adapter``, ``.emitter``, ``.semconv``, ``.store``, ``.tracer``, ``.types``, ``.utils.otel``, …).
A name without a counterpart says what to use instead.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._names import ABSENT, FLAT, OLDER

if TYPE_CHECKING:
    from lightstream.schemas import __version__ as __version__
    from lightstream.store_views.stores import KafkaLightningStore as KafkaLightningStore

    from .adapter import *
    from .adapter import BaseTraceTripletAdapter as BaseTraceTripletAdapter
    from .adapter import TraceTripletAdapter as TraceTripletAdapter
    from .algorithm import *
    from .client import *
    from .config import *
    from .emitter import *
    from .env_var import *
    from .execution import *
    from .litagent import *
    from .llm_proxy import *
    from .logging import *
    from .runner import *
    from .server import *
    from .store import *
    from .tracer import *
    from .trainer import *
    from .types import *
    from .types import RolloutV2 as RolloutV2
else:
    __all__ = sorted(FLAT)


def __getattr__(name: str) -> Any:
    module = (FLAT | OLDER).get(name)
    if module is not None:
        value = getattr(import_module(module), name)
        globals()[name] = value
        return value
    if name in ABSENT:
        raise AttributeError(f"{__name__} has no {name}; instead: {ABSENT[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *FLAT})
