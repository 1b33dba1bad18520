"""Options of a search for prompts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lightstream.schemas.errors import SettingsError


@dataclass(frozen=True, kw_only=True)
class ApoOptions:
    """Options of a search for prompts, by Agent Lightning's names.

    Attributes:
        gradient_model: the model that criticises a prompt.
        apply_edit_model: the model that edits a prompt as its critique says.
        diversity_temperature: of both.
        gradient_batch_size: training tasks that are rolled out with a prompt for each critique of it.
        val_batch_size: validation tasks that the candidates of a round are compared on.
        beam_width: prompts that are kept after a round.
        branch_factor: new prompts that are made from each kept one in a round.
        beam_rounds: rounds in all.
        rollout_batch_timeout: seconds to wait for a batch of rollouts; what is not over by then counts as reward 0.
        run_initial_validation: measure the prompt that was given on all validation tasks first.
        seed: of which tasks, rollouts and instructions are taken.

    Raises:
        SettingsError: one is out of range.
    """

    gradient_model: str = "gpt-5-mini"
    apply_edit_model: str = "gpt-4.1-mini"
    diversity_temperature: float = 1.0
    gradient_batch_size: int = 4
    val_batch_size: int = 16
    beam_width: int = 4
    branch_factor: int = 4
    beam_rounds: int = 3
    rollout_batch_timeout: float = 3600.0
    run_initial_validation: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("gradient_batch_size", "val_batch_size", "beam_width", "branch_factor", "beam_rounds"):
            if getattr(self, name) < 1:
                raise SettingsError(f"APO's {name} is {getattr(self, name)}; at least 1 is needed.")
        if not 0 < self.rollout_batch_timeout < math.inf:
            raise SettingsError(
                f"APO's rollout_batch_timeout is {self.rollout_batch_timeout}; a finite number of seconds is needed."
            )
        if not 0 <= self.diversity_temperature < math.inf:
            raise SettingsError(f"APO's diversity_temperature is {self.diversity_temperature}; 0 or more is needed.")
