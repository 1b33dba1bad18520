"""For a loop of your own on verl: agents' rollouts in our store as the batches that verl's trainers take.

Who has no loop of his own needs none of this: ``lightstream.agl.VERL`` trains by itself, and goes on after a crash.
Batches and the trainer need verl (``lightstream-rl[train]``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .daemon import (
    AgentModeDaemon,
    get_left_padded_ids_and_attention_mask,
    get_right_padded_ids_and_attention_mask,
)
from .dataset import AgentDataset, LoadedDataset

if TYPE_CHECKING:
    from .trainer import AgentLightningTrainer as AgentLightningTrainer

__all__ = [
    "AgentDataset",
    "AgentLightningTrainer",
    "AgentModeDaemon",
    "LoadedDataset",
    "get_left_padded_ids_and_attention_mask",
    "get_right_padded_ids_and_attention_mask",
]


def __getattr__(name: str) -> Any:
    if name == "AgentLightningTrainer":  # its base imports Ray
        from .trainer import AgentLightningTrainer

        return AgentLightningTrainer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
