"""Lightstream: reinforcement learning for any agent, from the event stream it leaves behind.

What most programs need; each package within has more.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightstream.producers import LitAgent as LitAgent
    from lightstream.producers import emit_reward as emit_reward
    from lightstream.producers import rollout as rollout
    from lightstream.trainers import SFT as SFT
    from lightstream.trainers import VERL as VERL
    from lightstream.trainers import Trainer as Trainer
    from lightstream.trainers import algo as algo

    __version__: str

__all__ = ["SFT", "VERL", "LitAgent", "Trainer", "__version__", "algo", "emit_reward", "rollout"]

_PACKAGES = {
    **dict.fromkeys(("SFT", "VERL", "Trainer", "algo"), "lightstream.trainers"),
    **dict.fromkeys(("LitAgent", "emit_reward", "rollout"), "lightstream.producers"),
}
"""Name -> the package that has it, imported when the name is first used."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from lightstream.schemas.distribution import installed_version

        return installed_version()
    if name not in _PACKAGES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PACKAGES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
