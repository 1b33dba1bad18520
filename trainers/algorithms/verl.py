"""The VERL algorithm: the training loop with verl's engine in this process."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import MISSING, InitVar, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError, TrainingError

from ..engines.verl.config import VerlConfig, is_url
from ..engines.verl.engine import VerlEngine
from ..engines.verl.initial import write_initial_model
from ..engines.verl.reward_model import RewardModel, ScoredGroups
from ..engines.verl.verl_keys import options_of_config
from ..loop.loop import TrainingLoop
from ..loop.protocols import Engine, PolicyServers
from ..rollouts.batch import AgentPolicy, trained
from ..rollouts.protocol import GroupSource
from ..run.checkpoint.adapter import read_shape
from ..run.identity import OPTIONS, check_model, identity_of_model
from ..run.option import conflicts, option
from ..servers.following import check_model_server, check_proxy_alone
from ..servers.vllm import VllmOptions
from .context import AlgorithmContext
from .interface import Algorithm


@dataclass(frozen=True, kw_only=True)
class VERL(VerlConfig, Algorithm):
    """verl's GRPO or PPO, in this process or in several that Ray starts. See :class:`VerlConfig` for the options.

    Each step: roll out, take complete groups, update, write the weights, commit step, resources and offsets
    together. Rollouts are pinned to the version they were enqueued with. A step of which nothing can be trained on is
    discarded: it is committed as such, and made again with new rollouts. One whose groups have no signal counts, and
    changes nothing.

    Args:
        config: verl's own configuration, nested or with dotted keys, from which the options are taken; options that it
            leaves out may be given beside it. A key that has no counterpart here is refused, with the reason.
    """

    servers: VllmOptions | None = option(
        None,
        "`VllmOptions(...)`: start vLLM for this training ([more](training.md#vllm)), in place of a policy server",
        rules=(conflicts("policies", why="which are served by the policy server: vLLM has one model at a time"),),
    )
    config: InitVar[Mapping[str, Any] | None] = None

    def __post_init__(self, config: Mapping[str, Any] | None) -> None:
        options = {} if config is None else options_of_config(config)
        by_default = {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in fields(self)}
        for name, value in options.items():
            given = getattr(self, name)
            if given not in (value, by_default[name]):
                raise SettingsError(
                    f"VERL's {name} is {given!r}, but {value!r} by its configuration; give one of them."
                )
            object.__setattr__(self, name, value)
        VerlConfig.__post_init__(self)

    def check(self, settings: Settings) -> None:
        reference = None if is_url(self.reference) else self.reference
        for model in (self.model, reference, self.critic_model, self.reward_model):
            if model is not None:
                check_model(model)
        self._check_policies_are_served(settings)
        if self.servers is None:
            check_model_server(settings)
        else:
            check_proxy_alone(settings)

    def _check_policies_are_served(self, settings: Settings) -> None:
        """Refuse adapters that the policy server would not serve, or that no call would come to."""
        if self.policies and settings.llm_model is not None:
            raise SettingsError(
                f"LIGHTSTREAM_LLM_MODEL is {settings.llm_model!r}, which the proxy asks for in place of each policy's "
                "model.",
                next_step="Unset it.",
            )
        for name, policy in self.policies.items():
            rank = policy.lora_rank if policy.adapter is None else read_shape(Path(policy.adapter).expanduser()).rank
            if rank > settings.policy_lora_rank_max:
                raise SettingsError(
                    f"policy {name!r} has the lora_rank {rank}; the policy server allows "
                    f"{settings.policy_lora_rank_max}.",
                    next_step="Take a smaller one, or raise LIGHTSTREAM_POLICY_LORA_RANK_MAX, there too.",
                )

    def made_with(self) -> dict[str, str]:
        others = {"critic": self.critic_model, "reward_model": self.reward_model}
        found = {
            "algorithm": f"VERL {self.advantage}",
            "model": identity_of_model(self.model),
            "tasks_per_step": str(self.tasks_per_step),
            "rollouts_per_task": str(self.rollouts_per_task),
            "lora_rank": str(self.lora_rank),
            "reference": self._identity_of_reference(),
            OPTIONS: self.as_json(),
        }
        found |= {name: identity_of_model(model) for name, model in others.items() if model is not None}
        return found | {f"policy {name}": _identity(policy) for name, policy in self.policies.items()}

    def _identity_of_reference(self) -> str:
        """Its name; of a server's the model's, since the server may move."""
        if self.reference is None:
            return "the first weights"
        if is_url(self.reference):
            return f"a server's {urldefrag(str(self.reference)).fragment}".strip()
        return identity_of_model(self.reference)

    def new_engine(self, folder: Path, first: Path | None = None) -> Engine:
        """An engine with the weights of a folder, in as many processes as :attr:`processes` says.

        ``first`` has the run's first weights; ``None``: ``folder``.
        """
        if self.engine == "process" or (self.engine == "auto" and self.processes == 1):
            return VerlEngine(self, folder, first=first)
        from ..engines.ray import RayEngine

        return RayEngine(self, folder, first=first)

    def scored(self, source: GroupSource) -> GroupSource:
        """The source, with the rewards of :attr:`reward_model`, if there is one.

        Raises:
            TrainingError: it cannot say what these rollouts are worth.
        """
        if self.reward_model is None:
            return source
        return ScoredGroups(source, RewardModel(self.reward_model, self.model, device=self.device, dtype=self.dtype))

    def of_tasks(self, tasks: int) -> VERL:
        """The algorithm with the steps that :attr:`epochs` are for this number of tasks.

        Raises:
            SettingsError: they are fewer than one step takes.
        """
        if self.epochs is None:
            return self
        if tasks < self.tasks_per_step:
            raise SettingsError(f"{tasks} tasks are fewer than a step takes, {self.tasks_per_step}.")
        return replace(self, steps=self.epochs * (tasks // self.tasks_per_step), epochs=None)

    def run(self, context: AlgorithmContext) -> None:
        if self.epochs is not None:
            raise TrainingError("a recording does not say how many tasks an epoch has.", next_step="Give VERL steps.")
        if context.resources is None:
            context.progress.say(f"Loading {self.model} …")
        context = context.on(source=self.scored(context.source))
        with self._servers(context) as servers:
            loop = TrainingLoop(
                self,
                context.rollouts,
                context.steps,
                servers,
                write_first=partial(write_initial_model, self, seed=context.seed),
                new_engine=self.new_engine,
            )
            loop.run()

    def trained_policies(self) -> frozenset[str]:
        return frozenset(trained(self.policies))

    def _servers(self, context: AlgorithmContext) -> AbstractContextManager[PolicyServers]:
        if self.servers is None:
            return nullcontext(context.servers)
        from ..servers.vllm import VllmServers

        return VllmServers(context.settings, self.servers)


def _identity(policy: AgentPolicy) -> str:
    """The values of a policy that a run that goes on must share with its beginning."""
    begins = f"rank {policy.lora_rank}, alpha {policy.lora_alpha}"
    if policy.adapter is not None:
        begins = identity_of_model(policy.adapter)
    return f"{begins}, frozen" if policy.frozen else begins
