"""verl's PPO loss, and a look at how far the actor is from the policy that sampled."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["ComparingLoss"]


class ComparingLoss:
    """Calls verl's ``ppo_loss``. While ``comparing``, notes the largest |actor - sampled| log-probability.

    The actor's log-probabilities are there anyway, before the first update of a step: comparing costs no further pass.

    Attributes:
        comparing: true until the step's first update.
        difference_max: over all tokens with mask 1 of the rows marked ``compared``; NaN before the first.
    """

    def __init__(self, config: Any) -> None:
        self._config = config
        self.comparing = False
        self.difference_max = math.nan

    def __call__(self, model_output: Any, data: Any, dp_group: Any = None) -> Any:
        from verl.workers.utils.losses import ppo_loss

        if self.comparing:
            self.compare(model_output["log_probs"], data)
        return ppo_loss(config=self._config, model_output=model_output, data=data, dp_group=dp_group)

    def compare(self, log_probs: Any, data: Any) -> None:
        """Take in the actor's log-probabilities (nested, (N, prompt + response)) of a batch."""
        import torch
        from verl.workers.utils.padding import no_padding_2_padding

        with torch.no_grad():
            actor = no_padding_2_padding(log_probs.detach(), data)
            sampled = data["old_log_probs"].to_padded_tensor(0.0)
            mask = data["response_mask"].to_padded_tensor(0).bool() & data["compared"].bool().unsqueeze(1)
            differences = (actor.float() - sampled).abs()[mask]
            if differences.numel():
                largest = float(differences.max())
                self.difference_max = largest if math.isnan(self.difference_max) else max(self.difference_max, largest)
