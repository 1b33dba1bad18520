"""Options of a training loop."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.sampling import changed_sampling

from ..rollouts.batch import Advantage, AdvantagePer, AgentPolicy, MissingReward, Overlong, Scoring, check_policies
from ..run.history import MEAN_REWARDS_KEPT
from ..run.option import check_declared, option

__all__ = ["GAP_ADVICE", "LoopOptions"]

GAP_MAX = 0.1
"""The same weights are about 1e-6 apart in float32, and 0.01 on average in bfloat16, where single tokens are by 1 and
more. Half the temperature, or another run's weights, make tenths on average."""

GAP_ADVICE = (
    "Nothing of the step is committed. Do both compute with the same weights (`resources_id` of the calls in "
    "`llm_calls`), at the same temperature, from the same template, in the same type (VERL(dtype=...), the "
    "server's)? A server that is meant to differ (say, in fp8) needs VERL(logprob_gap_max=...), and a "
    "rollout_correction."
)


@dataclass(frozen=True, kw_only=True)
class LoopOptions:
    """Options of a training loop, whatever the engine.

    Attributes:
        steps: how many steps to make in all.
        epochs: in place of that, how many passes over the tasks; the rest at the end of a pass is left out.
        tasks_per_step: tasks in a step's batch.
        rollouts_per_task: samples of each task (``n``): the group that advantages are computed in.
        steps_ahead: how many steps' rollouts may be in progress beyond the step that is being made. 0 trains on the
            current policy alone; with k, calls may be sampled by a policy up to k versions old, not older, and no more
            rollouts than those of k + n steps are consumed or in progress while step n is made.
        stale: what becomes of a group that would be older than that in the next step: the step waits for it (``wait``),
            or goes on with others, and it is given up (``drop``: quick where a few rollouts take long, but what takes
            long is then trained on less).
        over_sampling: with ``drop``, groups in progress beyond those.
        group_min: a group is taken with this many of its rollouts, if the others do not come in time; ``None``: it is
            skipped then.
        group_deadline_s: "in time", in seconds without a rollout of the group, or of one asked for before; ``None``: as
            long as its rollouts may take.
        refill_silent_groups: up to this many groups of a step that have one reward each, and so no signal, are left
            out of it, and others taken in their place.
        advantage, advantage_per, reward_missing, reward_fill, reward_dimensions: how rewards become advantages: see
            :class:`~lightstream.trainers.rollouts.batch.Scoring`.
        entropy_coefficient: weight of the entropy bonus. Where it is 0, rows without an advantage are not computed.
        kl_loss_coefficient: weight of the KL to a frozen reference policy in the loss. Every row is computed then.
        kl_reward_coefficient: weight of the KL that is taken from the reward before rewards are compared: the sum over
            those tokens of the rollout (of the call, with ``advantage_per="turn"``) that can be trained on. With
            ``gae``, each token pays for its own.
        temperature: of the sampling; log-probabilities are compared at the same one. Calls of another temperature are
            left out (and counted).
        sampling_parameters: further parameters of the agent's calls (``max_tokens``, …).
        logprob_gap_max: a step learns nothing, and is discarded, where the log-probabilities of actor and model server
            differ by more, of tokens of the current version: at most in float32, on average in bfloat16. ``None``: 0.1;
            infinity: whatever they are.
        prompt_tokens_max: calls with a longer prompt are left out (and counted).
        response_tokens_max: longer responses are left out (and counted), or cut.
        overlong: what becomes of them: ``exclude`` leaves out those that were cut off by ``max_tokens``, too (finish
            reason ``length``; DAPO's filter, arXiv:2503.14476); ``truncate`` trains on their first tokens. Either way
            they count in their group's mean.
        policies: several policies for the agents of one system, by name: see
            :class:`~lightstream.trainers.rollouts.batch.AgentPolicy`. Each is an adapter (LoRA) of the one model, which
            itself stays as it is; agents call it by the resource of its name. None: one policy.
        resource_name: name of the model among the agent's resources.
        served_model: name that the weights are served under; version k is requested as ``<served_model>@k``. ``None``:
            the run's name, which no other run has.
        keep_checkpoints: how many of the last steps' weights stay on the disk.
        checkpoint_every: steps from one checkpoint with the optimiser to the next; a restart makes those since the last
            one again.
        validate_every: measure the validation tasks before every so many steps, the first included, and after the
            last; 0 never.
        validation_samples: rollouts of each validation task; of more than one, pass@k is measured too.
        validation_sampling_parameters: of validation rollouts, ``temperature`` and ``max_tokens`` included; ``None``:
            as in training.
        val_only: measure the latest policy on the validation tasks, and make no step.
        rollout_data_dir, validation_data_dir: folders for what was generated, as text: ``<step>.jsonl`` for each step,
            and for each policy that was validated. ``None``: none is written.
        steps_without_signal_max: this many steps in a row of which nothing could be trained on end the run; one is
            enough where every rollout failed.
        reward_target: end the run early once the mean reward of each of the last ``reward_target_steps`` steps, on
            average, is at least this; ``None``: make all steps.
    """

    steps: int = option(0, verl="trainer.total_training_steps", least=0)
    epochs: int | None = option(None, verl="trainer.total_epochs")
    tasks_per_step: int = option(8, verl="data.train_batch_size", least=1)
    rollouts_per_task: int = option(8, verl="actor_rollout_ref.rollout.n", least=1)
    steps_ahead: int = option(0, least=0)
    stale: Literal["wait", "drop"] = option("wait", choices=("wait", "drop"))
    over_sampling: int = option(0, least=0)
    group_min: int | None = None
    group_deadline_s: float | None = option(None, positive=True)
    refill_silent_groups: int = option(0, least=0)
    advantage: Advantage = "grpo"
    advantage_per: AdvantagePer = "rollout"
    reward_missing: MissingReward = "exclude"
    reward_fill: float = 0.0
    reward_dimensions: Mapping[str, float] = field(default_factory=dict[str, float])
    entropy_coefficient: float = option(0.0, verl="actor_rollout_ref.actor.entropy_coeff")
    kl_loss_coefficient: float = 0.0
    kl_reward_coefficient: float = 0.0
    temperature: float = option(1.0, verl="actor_rollout_ref.rollout.temperature", positive=True)
    sampling_parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    logprob_gap_max: float | None = None
    prompt_tokens_max: int | None = option(None, verl="data.max_prompt_length", least=1)
    response_tokens_max: int | None = option(None, verl="data.max_response_length", least=1)
    overlong: Overlong = option("exclude", choices=("exclude", "truncate"))
    policies: Mapping[str, AgentPolicy] = field(default_factory=dict[str, AgentPolicy])
    resource_name: str = "main_llm"
    served_model: str | None = None
    keep_checkpoints: int = option(4, verl="trainer.max_actor_ckpt_to_keep")
    checkpoint_every: int = option(10, least=1)
    validate_every: int = option(0, least=0)
    validation_samples: int = option(1, verl="actor_rollout_ref.rollout.val_kwargs.n", least=1)
    validation_sampling_parameters: Mapping[str, Any] | None = None
    val_only: bool = option(False, verl="trainer.val_only")
    rollout_data_dir: str | Path | None = option(None, verl="trainer.rollout_data_dir")
    validation_data_dir: str | Path | None = option(None, verl="trainer.validation_data_dir")
    steps_without_signal_max: int = option(3, least=1)
    reward_target: float | None = None
    reward_target_steps: int = option(5, least=1)

    def __post_init__(self) -> None:
        check_declared(self)
        check_at_least(self, keep_checkpoints=self.steps_ahead + 2)  # rollouts of the oldest policy need its weights
        has_length = bool(self.steps) != (self.epochs is not None) and (self.epochs is None or self.epochs >= 1)
        if not (has_length or self.val_only):
            raise SettingsError(
                f"VERL's steps are {self.steps}, and its epochs {self.epochs}; either is needed, and at least 1.",
                next_step="verl's own keys are trainer.total_training_steps and trainer.total_epochs.",
            )
        if self.logprob_gap_max is not None and not self.logprob_gap_max >= 0:
            raise SettingsError(
                f"VERL's logprob_gap_max is {self.logprob_gap_max}; a number of at least 0, or None, is needed."
            )
        if self.group_min is not None and not 1 <= self.group_min <= self.rollouts_per_task:
            raise SettingsError(
                f"VERL's group_min is {self.group_min}; 1 to rollouts_per_task ({self.rollouts_per_task}) is needed."
            )
        if self.reward_target_steps > MEAN_REWARDS_KEPT:
            raise SettingsError(
                f"VERL's reward_target_steps is {self.reward_target_steps}; at most {MEAN_REWARDS_KEPT} are looked at."
            )
        if self.over_sampling and self.stale != "drop":
            raise SettingsError(
                f"VERL's over_sampling is {self.over_sampling} while stale groups are waited for.",
                next_step='Set stale="drop": groups beyond those that a step takes are given up then.',
            )
        for name in ("kl_loss_coefficient", "kl_reward_coefficient"):
            if not 0 <= getattr(self, name) < math.inf:
                raise SettingsError(f"VERL's {name} is {getattr(self, name)}; a finite number of at least 0 is needed.")
        if self.refill_silent_groups and self.advantage in ("reinforce_plus_plus", "gae"):
            raise SettingsError(
                f"VERL's {self.advantage} compares the rollouts of a step, whatever their groups: none of these is "
                "silent by itself.",
                next_step="Leave out refill_silent_groups, or take another advantage.",
            )
        if self.kl_reward_coefficient and (self.reward_dimensions or self.refill_silent_groups):
            raise SettingsError(
                "VERL's kl_reward_coefficient changes the one reward of a rollout: it does not go together with "
                "reward_dimensions, nor with refill_silent_groups.",
                next_step="Put the KL into the loss: kl_loss_coefficient.",
            )
        self._check_policies()
        _ = self.scoring
        _check_sampling(self.sampling_parameters)

    def _check_policies(self) -> None:
        check_policies(self.policies)
        if self.resource_name in self.policies:
            raise SettingsError(
                f"one of VERL's policies is named {self.resource_name!r}, as the model that all of them share is.",
                next_step="Name it otherwise, or change resource_name.",
            )
        if self.policies and self.advantage == "gae":
            raise SettingsError(
                "VERL's policies have no critic each, which the advantage 'gae' needs.",
                next_step="Take another advantage, or train one policy alone.",
            )

    def of_failures(self, retried: Collection[str]) -> str:
        """What becomes of attempts that fail, in a sentence.

        Args:
            retried: ends of an attempt after which another follows.
        """
        missing = {
            "exclude": 'is left out, so that a policy that crashes is not punished; reward_missing="fill" gives it '
            "reward_fill",
            "fill": f"has the reward {self.reward_fill:g} (reward_fill)",
            "fail_group": "has its whole group left out (reward_missing)",
        }[self.reward_missing]
        again = "is tried again" if "timeout" in retried else "is one that failed"
        return (
            f"A rollout that fails without a reward {missing}. One that times out {again} "
            "(Trainer's rollout_config, retry_condition)."
        )

    @property
    def gap_max(self) -> float:
        """The largest gap of log-probabilities between actor and model server at which a step is learned from."""
        return GAP_MAX if self.logprob_gap_max is None else self.logprob_gap_max

    @property
    def has_baselines(self) -> bool:
        """Whether each task has one rollout more, of the likeliest tokens, that the others are compared with."""
        return self.advantage == "remax"

    @property
    def compares_with_reference(self) -> bool:
        """Whether there is a reference policy."""
        return bool(self.kl_loss_coefficient or self.kl_reward_coefficient)

    @property
    def trains_every_row(self) -> bool:
        """Whether rows without an advantage change the weights too; with a critic, every row has one."""
        return bool(self.entropy_coefficient or self.kl_loss_coefficient) or self.has_critic

    @property
    def has_critic(self) -> bool:
        """Whether the engine makes the advantages, token by token, of the rewards and of what a critic expects."""
        return self.scoring.has_critic

    @property
    def scoring(self) -> Scoring:
        """Rules by which rewards become advantages."""
        return Scoring(
            advantage=self.advantage,
            per=self.advantage_per,
            reward_missing=self.reward_missing,
            reward_fill=self.reward_fill,
            dimensions=self.reward_dimensions,
        )


def check_at_least(options: object, **least: int) -> None:
    """Refuse options below these.

    Raises:
        SettingsError: names the first.
    """
    for name, bound in least.items():
        if getattr(options, name) < bound:
            raise SettingsError(f"VERL's {name} is {getattr(options, name)}; at least {bound} is needed.")


def check_one_of(options: object, **known: tuple[object, ...]) -> None:
    """Refuse options that are none of these.

    Raises:
        SettingsError: names the first.
    """
    for name, values in known.items():
        if getattr(options, name) not in values:
            raise SettingsError(
                f"VERL's {name} is {getattr(options, name)!r}; there are {', '.join(map(str, values))}."
            )


def _check_sampling(parameters: Mapping[str, Any]) -> None:
    """Refuse parameters under which tokens are not sampled from the policy's own distribution."""
    wrong = [f"{name}={value!r}" for name, value in changed_sampling(parameters).items()]
    if wrong:
        raise SettingsError(
            f"VERL's sampling_parameters have {', '.join(wrong)}: tokens sampled so have other probabilities than the "
            "policy that is trained gives them, and each update would be biased.",
            next_step="Leave them out while training.",
        )
    if "temperature" in parameters:
        raise SettingsError("VERL's sampling_parameters have a temperature.", next_step="Set VERL's own temperature.")
