"""The VERL algorithm: the training loop with verl's engine in this process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from lightstream.runtime.settings import Settings

from ..algorithm import Algorithm, AlgorithmContext
from ..loop.loop import TrainingLoop
from ..policy_servers import check_model_server
from ..run_identity import OPTIONS, check_model, identity_of_model
from .config import VerlConfig
from .engine import VerlEngine
from .initial import write_initial_model

__all__ = ["VERL"]


@dataclass(frozen=True, kw_only=True)
class VERL(VerlConfig, Algorithm):
    """verl's GRPO in this process. See :class:`VerlConfig` for the options.

    Each step: roll out, take complete groups, update, write the weights, commit step, resources and offsets
    together. Rollouts are pinned to the version they were enqueued with. A step of which nothing can be trained on is
    discarded: it is committed as such, and made again with new rollouts. One whose groups have no signal counts, and
    changes nothing.
    """

    def check(self, settings: Settings) -> None:
        check_model(self.model)
        check_model_server(settings)

    def made_with(self) -> dict[str, str]:
        return {
            "algorithm": f"VERL {self.advantage}",
            "model": identity_of_model(self.model),
            "tasks_per_step": str(self.tasks_per_step),
            "rollouts_per_task": str(self.rollouts_per_task),
            OPTIONS: self.as_json(),
        }

    def run(self, context: AlgorithmContext) -> None:
        if context.resources is None:
            context.progress.say(f"Loading {self.model} …")
        loop = TrainingLoop(
            self,
            context,
            write_first=partial(write_initial_model, self, seed=context.seed),
            new_engine=partial(VerlEngine, self),
        )
        loop.run()
