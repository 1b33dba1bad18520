"""The VERL algorithm: the training loop with verl's engine in this process."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lightstream.runtime.settings import Settings

from ..algorithm import Algorithm, AlgorithmContext
from ..loop.loop import TrainingLoop
from ..policy_servers import check_model_server, check_proxy_alone
from ..protocols import Engine, PolicyServers
from ..run_identity import OPTIONS, check_model, identity_of_model
from ..vllm_servers import VllmOptions
from .config import VerlConfig
from .engine import VerlEngine
from .initial import write_initial_model

__all__ = ["VERL"]


@dataclass(frozen=True, kw_only=True)
class VERL(VerlConfig, Algorithm):
    """verl's GRPO, in this process or in several that Ray starts. See :class:`VerlConfig` for the options.

    Each step: roll out, take complete groups, update, write the weights, commit step, resources and offsets
    together. Rollouts are pinned to the version they were enqueued with. A step of which nothing can be trained on is
    discarded: it is committed as such, and made again with new rollouts. One whose groups have no signal counts, and
    changes nothing.

    Attributes:
        servers: start vLLM so for this training, in place of a policy server that runs already.
    """

    servers: VllmOptions | None = None

    def check(self, settings: Settings) -> None:
        for model in (self.model, *([] if self.reference is None else [self.reference])):
            check_model(model)
        if self.servers is None:
            check_model_server(settings)
        else:
            check_proxy_alone(settings)

    def made_with(self) -> dict[str, str]:
        return {
            "algorithm": f"VERL {self.advantage}",
            "model": identity_of_model(self.model),
            "tasks_per_step": str(self.tasks_per_step),
            "rollouts_per_task": str(self.rollouts_per_task),
            "lora_rank": str(self.lora_rank),
            "reference": "the first weights" if self.reference is None else identity_of_model(self.reference),
            OPTIONS: self.as_json(),
        }

    def new_engine(self, folder: Path, first: Path | None = None) -> Engine:
        """An engine with the weights of a folder, in as many processes as :attr:`processes` says.

        ``first`` has the run's first weights; ``None``: ``folder``.
        """
        if self.processes == 1:
            return VerlEngine(self, folder, first=first)
        from ..verl_on_ray import RayEngine

        return RayEngine(self, folder, first=first)

    def run(self, context: AlgorithmContext) -> None:
        if context.resources is None:
            context.progress.say(f"Loading {self.model} …")
        with self._servers(context) as context.servers:
            loop = TrainingLoop(
                self,
                context,
                write_first=partial(write_initial_model, self, seed=context.seed),
                new_engine=self.new_engine,
            )
            loop.run()

    def _servers(self, context: AlgorithmContext) -> AbstractContextManager[PolicyServers]:
        if self.servers is None:
            return nullcontext(context.servers)
        from ..vllm_servers import VllmServers

        return VllmServers(context.settings, self.servers)
