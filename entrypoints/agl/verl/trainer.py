"""verl's PPO trainer on agents' rollouts. Its base, and Ray, are imported when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._ppo_trainer import AgentLightningTrainer as AgentLightningTrainer

__all__ = ["AgentLightningTrainer"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from ._ppo_trainer import AgentLightningTrainer

        return AgentLightningTrainer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
