"""The Trainer of algorithms that train."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._arguments import refuse

if TYPE_CHECKING:
    from .trainer import Trainer

__all__ = ["training_trainer"]

_PROCESSES = "Runners are processes of their own, which read their settings from the environment."

NO_USE_FOR_TRAINING = {
    "max_rollouts": _PROCESSES,
    "initial_resources": "Each step publishes its own.",
    "tracer": _PROCESSES,
    "adapter": "Trajectories come from the assembler: LIGHTSTREAM_TRAINED_AGENTS selects agents, "
    "LIGHTSTREAM_REWARD_MATCH and LIGHTSTREAM_CREDIT say which call gets a reward.",
    "llm_proxy": "`lightstream up` runs the proxy.",
    "hooks": _PROCESSES,
    "strategy": _PROCESSES,
    "runner": _PROCESSES,
}
"""Argument -> what to do instead, for algorithms that train."""


def training_trainer(trainer: Trainer, others: Mapping[str, Any]) -> Any:
    """The Trainer of ``lightstream.trainers`` for the algorithm of this one.

    Raises:
        SettingsError: an argument was given that it does not use.
    """
    from lightstream import trainers

    given = {name: getattr(trainer, name) or None for name in NO_USE_FOR_TRAINING}
    refuse(type(trainer.algorithm).__name__, given, NO_USE_FOR_TRAINING)
    return trainers.Trainer(algorithm=trainer.algorithm, n_runners=trainer.n_runners, store=trainer.store, **others)
