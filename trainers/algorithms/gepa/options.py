"""Options of prompt evolution."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lightstream.schemas.errors import SettingsError


@dataclass(frozen=True, kw_only=True)
class GepaOptions:
    """Options of prompt evolution, by gepa's names.

    Attributes:
        reflection_model: the model that reads rollouts and rewrites the prompt.
        reflection_temperature: its temperature.
        reflection_minibatch_size: training tasks that each rewriting looks at.
        max_metric_calls: rollouts of the whole search; the one that is under way ends.
        perfect_score: a prompt whose rollouts all have this reward is not rewritten for them; ``None``: it is.
        rollout_batch_timeout: seconds to wait for a batch of rollouts; an open one then counts as reward 0.
        seed: of the choices of tasks and prompts.

    Raises:
        SettingsError: one is out of range.
    """

    reflection_model: str = "gpt-5-mini"
    reflection_temperature: float = 1.0
    reflection_minibatch_size: int = 3
    max_metric_calls: int = 200
    perfect_score: float | None = 1.0
    rollout_batch_timeout: float = 3600.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("reflection_minibatch_size", "max_metric_calls"):
            if getattr(self, name) < 1:
                raise SettingsError(f"GEPA's {name} is {getattr(self, name)}; at least 1 is needed.")
        if not 0 < self.rollout_batch_timeout < math.inf:
            raise SettingsError(
                f"GEPA's rollout_batch_timeout is {self.rollout_batch_timeout}; a finite number of seconds is needed."
            )
        if not 0 <= self.reflection_temperature < math.inf:
            raise SettingsError(f"GEPA's reflection_temperature is {self.reflection_temperature}; 0 or more is needed.")
