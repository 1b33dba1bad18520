"""Options of the in-process VERL algorithm."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from lightstream.schemas.errors import SettingsError

from ...loop.options import LoopOptions, check_one_of
from ...rollouts.batch import LOSS_NORMALISATIONS, AgentPolicy, LossNormalisation
from ...run.option import option
from .correction import RolloutCorrection
from .warm_up import WarmUp

__all__ = ["CRITIC_OPTIONS", "GAP_MEASURES", "KL_TYPES", "POLICY_LOSSES", "VerlConfig", "options_of"]

POLICY_LOSSES = ("vanilla", "gspo", "cispo", "gpg", "dppo_tv", "dppo_kl")
"""Those of verl's whose value for a token follows from its own row and advantage: how a batch is cut is no matter."""

CLIP_RATIOS = {"vanilla": (0.2, 0.2), "gspo": (3e-4, 4e-4), "cispo": (1.0, 0.2)}
"""Loss -> bounds of the ratio by its paper (PPO's, arXiv:2507.18071, arXiv:2506.13585); no ratio is below 1 - 1."""

GAP_MEASURES = {"float32": "logprob_diff_max", "bfloat16": "logprob_diff_mean"}
"""Type -> the metric that is bounded. In bfloat16, single tokens are off by 1 and more with the same weights."""

CRITIC_OPTIONS = ("gamma", "lam", "critic_model", "critic_learning_rate", "value_clip", "critic_warmup_steps")
"""Options of ``advantage="gae"`` alone."""

KL_TYPES = ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3")
"""Estimators of verl's ``kl_penalty``."""

_CHOOSES = "which chooses tokens by comparing those of a micro-batch: the update would depend on how a batch is cut"
_AVERAGES = "which verl averages over rows, whatever loss_normalisation says"
POLICY_LOSSES_REFUSED = {
    "clip_cov": _CHOOSES,
    "kl_cov": _CHOOSES,
    "sapo": _AVERAGES,
    "geo_mean": _AVERAGES,
    "dro": "which pulls on rows without an advantage too: these are not computed here",
    "bypass_mode": "which is done by rollout_correction here",
}
"""verl's name -> why it is not offered."""


@dataclass(frozen=True, kw_only=True)
class VerlConfig(LoopOptions):
    """Options of a training. Defaults suit a model of a billion parameters; tiny ones take a larger learning rate.

    Those of the loop are :class:`~lightstream.trainers.loop.options.LoopOptions`; these are of model and arithmetic.

    Attributes:
        model: folder (or name) of the initial model, with its tokenizer, as ``from_pretrained`` takes it.
        learning_rate, weight_decay, lr_warmup_steps, gradient_norm_max: of AdamW.
        lr_schedule: ``constant``, or ``cosine``: down to ``learning_rate_min_ratio`` of the rate at the last step.
            Warm-up and schedule go by the number of the step, whether the steps before it changed the weights or not.
        clip_ratio_low, clip_ratio_high: bounds of the probability ratio, 1 - low and 1 + high. ``None``: those of the
            ``policy_loss``: 3e-4 and 4e-4 for ``gspo`` (by its paper; narrower than what a model server that computes
            in bfloat16 is off by: take a ``rollout_correction`` then), none below and 0.2 above for ``cispo`` (whose
            paper has no lower bound, and no number for the upper), else 0.2.
        dual_clip: bound of the ratio of tokens with a negative advantage, above 1 (dual clip, arXiv:1912.09729, which
            takes 3); ``None``: there is none, as in PPO's and GRPO's papers. Of ``vanilla`` alone.
        loss_normalisation: what weighs the same in the loss: every ``token``, ``rollout``, or ``sequence`` (a merged
            segment), or a token whatever the length of its answer (``constant``: the loss is divided by the number
            of rollouts times ``response_tokens_max``). ``None``: ``constant`` for ``dr_grpo``, ``sequence`` for
            ``gspo``, else ``token``.
        policy_loss: verl's name of the objective: ``vanilla`` (PPO's clipped ratio), ``gspo`` (the ratio of a whole
            merged sequence, arXiv:2507.18071; ``loss_normalisation`` is ``sequence`` then, unless given), ``cispo``
            (arXiv:2506.13585), ``gpg``, ``dppo_tv``, ``dppo_kl`` (the clip ratios bound a divergence,
            arXiv:2602.04879).
        kl_loss_type, kl_reward_type: estimators of the KL to the reference, in the loss and in the reward, by verl's
            names (``kl``, ``abs``, ``mse``, ``low_var_kl``, or ``k1``, ``k2``, ``k3``; in the loss, a ``+`` behind the
            name takes the gradient of ``k2``).
        reference: folder of the frozen reference policy; ``None``: the run's first weights.
        lora_rank, lora_alpha, lora_target_modules: train an adapter of this rank alone (peft's LoRA), in all linear
            layers or in those of these names. Servers get the merged weights; a checkpoint has the adapter. Rank 0:
            train the whole model.
        mini_batches_per_step, epochs_per_step: updates per step are their product. Every row is in one mini-batch of
            each epoch, whatever the number of rows.
        tokens_per_micro_batch: memory bound of one forward and backward pass, in tokens with padding; a row that is
            longer is computed alone.
        device: ``auto`` takes a GPU if there is one.
        dtype: number format of the forward pass; weights and optimiser are float32 always.
        threads: CPU threads of the arithmetic; ``None`` leaves torch's setting. Results are repeatable to the bit
            for the same number. Take 1 for a tiny model on a machine that runs everything else too: threads that wait
            for each other are ten times slower on busy cores.
        gradient_checkpointing: trade time for memory.
        processes: how many processes hold the model together (FSDP2), a GPU each; more than one are started by Ray, on
            this machine or on the cluster that ``RAY_ADDRESS`` names. The result does not depend on it, but for
            rounding.
        engine: ``process`` is this one, ``ray`` those that Ray starts, even a single one; ``auto``: Ray where there are
            several.
        nodes: over how many machines Ray divides the processes, equally many on each; with 1, it places them where
            there is room, on as few machines as it can.
        gamma, lam: of ``gae``: the discount of what a later token brings, and the weight of later errors of the critic
            (arXiv:1506.02438), for each sampled token.
        critic_model: folder (or name) of the model that the critic begins with; a head that says one value is added,
            and begins at zero, unless the folder has one. ``None``: the run's first weights. The critic is of the same
            vocabulary, and is trained whole.
        critic_learning_rate: of the critic; what else there is of AdamW is as for the actor.
        value_clip: so far a value may move in a step towards its return: beyond it, its loss has no gradient.
        critic_warmup_steps: so many steps train the critic alone.
        reward_model: folder (or name) of a frozen model that says one value of a conversation
            (``AutoModelForSequenceClassification`` with one label), of the policy's vocabulary. Its value of a
            rollout's last call is the rollout's reward, in place of the agent's, in validation too; among
            ``reward_dimensions`` its name is ``reward_model``. It runs in the trainer's process.
        rollout_correction: how to correct for rollouts of older policies, or of a server that computes differently;
            ``None``: weights of each token, cut off at 2, where there are steps ahead, else not.
        warm_up: called once with the initial model and its tokenizer, before version 0 is published.
    """

    model: str | Path = option("", verl="actor_rollout_ref.model.path")
    learning_rate: float = option(1e-6, verl="actor_rollout_ref.actor.optim.lr", positive=True)
    weight_decay: float = option(0.01, verl="actor_rollout_ref.actor.optim.weight_decay")
    lr_warmup_steps: int = option(0, least=0)
    gradient_norm_max: float = option(
        1.0, verl=("actor_rollout_ref.actor.grad_clip", "actor_rollout_ref.actor.optim.clip_grad")
    )
    lr_schedule: Literal["constant", "cosine"] = option(
        "constant", verl="actor_rollout_ref.actor.optim.lr_scheduler_type", choices=("constant", "cosine")
    )
    learning_rate_min_ratio: float = option(0.1, verl="actor_rollout_ref.actor.optim.min_lr_ratio")
    clip_ratio_low: float | None = option(None, verl="actor_rollout_ref.actor.clip_ratio_low")
    clip_ratio_high: float | None = option(None, verl="actor_rollout_ref.actor.clip_ratio_high")
    dual_clip: float | None = option(None, verl="actor_rollout_ref.actor.clip_ratio_c")
    loss_normalisation: LossNormalisation | None = option(None, choices=(None, *LOSS_NORMALISATIONS))
    policy_loss: str = option("vanilla", verl="actor_rollout_ref.actor.policy_loss.loss_mode")
    kl_loss_type: str = option("low_var_kl", choices=(*KL_TYPES, *(f"{name}+" for name in KL_TYPES)))
    kl_reward_type: str = option("kl", choices=KL_TYPES)
    reference: str | Path | None = None
    lora_rank: int = option(0, verl="actor_rollout_ref.model.lora_rank", least=0)
    lora_alpha: int = option(16, verl="actor_rollout_ref.model.lora_alpha", least=1)
    lora_target_modules: str | Sequence[str] = option("all-linear", verl="actor_rollout_ref.model.target_modules")
    mini_batches_per_step: int = option(1, least=1)
    epochs_per_step: int = option(1, verl="actor_rollout_ref.actor.ppo_epochs", least=1)
    tokens_per_micro_batch: int = option(16_384, verl="actor_rollout_ref.actor.ppo_max_token_len_per_gpu", least=1)
    device: Literal["auto", "cpu", "cuda"] = option("auto", choices=("auto", "cpu", "cuda"))
    dtype: Literal["float32", "bfloat16"] = option(
        "float32", verl="actor_rollout_ref.actor.fsdp_config.dtype", choices=("float32", "bfloat16")
    )
    threads: int | None = None
    gradient_checkpointing: bool = option(False, verl="actor_rollout_ref.model.enable_gradient_checkpointing")
    processes: int = option(1, least=1)
    engine: Literal["auto", "process", "ray"] = "auto"
    nodes: int = option(1, least=1)
    gamma: float = option(1.0, verl="algorithm.gamma")
    lam: float = option(1.0, verl="algorithm.lam")
    critic_model: str | Path | None = option(None, verl="critic.model.path")
    critic_learning_rate: float = option(1e-5, verl="critic.optim.lr", positive=True)
    value_clip: float = option(0.5, verl="critic.cliprange_value", positive=True)
    critic_warmup_steps: int = option(0, least=0)
    reward_model: str | Path | None = None
    rollout_correction: RolloutCorrection | None = None
    warm_up: WarmUp | None = None

    def __post_init__(self) -> None:
        LoopOptions.__post_init__(self)
        if not str(self.model):
            raise SettingsError(
                "VERL has no model.", next_step="Name one: model=..., or verl's actor_rollout_ref.model.path."
            )
        self._check_loss()
        self._check_critic()
        if self.policies and (self.lora_rank or self.processes > 1 or self.engine == "ray"):
            raise SettingsError(
                "VERL has policies, which are adapters of their own, trained in this process; but its lora_rank is "
                f"{self.lora_rank}, its processes {self.processes}, its engine {self.engine!r}.",
                next_step="Leave these out; each policy has a lora_rank.",
            )
        if self.processes % self.nodes:
            raise SettingsError(
                f"VERL's processes are {self.processes}, which {self.nodes} nodes cannot share equally.",
                next_step="Take a multiple of the nodes.",
            )
        if self.reward_model is not None and self.advantage_per == "turn":
            raise SettingsError(
                'VERL\'s reward_model gives a rollout one reward, but its advantage_per is "turn".',
                next_step="Leave one of them out.",
            )
        if self.policy_loss in POLICY_LOSSES_REFUSED:
            raise SettingsError(
                f"VERL's policy_loss is {self.policy_loss!r}, {POLICY_LOSSES_REFUSED[self.policy_loss]}.",
                next_step=f"There are {', '.join(POLICY_LOSSES)}.",
            )
        check_one_of(
            self,
            policy_loss=POLICY_LOSSES,
            engine=("auto", "ray") if self.processes > 1 else ("auto", "process", "ray"),
        )
        if self.normalisation == "constant" and self.response_tokens_max is None:
            raise SettingsError(
                "VERL's constant normalisation divides by response_tokens_max, which is not given.",
                next_step="Give it the most tokens an answer may have (max_tokens of the sampling).",
            )

    def _check_loss(self) -> None:
        for name in ("clip_ratio_low", "clip_ratio_high"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise SettingsError(f"VERL's {name} is {value}; a number of at least 0, or None, is needed.")
        if self.dual_clip is not None and not 1 < self.dual_clip < math.inf:
            raise SettingsError(f"VERL's dual_clip is {self.dual_clip}; a finite number above 1, or None, is needed.")

    def _check_critic(self) -> None:
        critics = {f.name: f.default for f in fields(VerlConfig) if f.name in CRITIC_OPTIONS}
        idle = [name for name, default in critics.items() if getattr(self, name) != default]
        if idle and not self.has_critic:
            raise SettingsError(
                f"VERL's {', '.join(idle)} {'is' if len(idle) == 1 else 'are'} given, but its advantage is "
                f"{self.advantage!r}, which has no critic.",
                next_step='Leave it out, or set advantage="gae".',
            )
        for name in ("gamma", "lam"):
            if not 0 <= getattr(self, name) <= 1:
                raise SettingsError(f"VERL's {name} is {getattr(self, name)}; a number from 0 to 1 is needed.")

    def as_json(self) -> str:
        """All options, without :attr:`warm_up`, for :func:`options_of`."""
        values = {f.name: getattr(self, f.name) for f in fields(VerlConfig) if f.name != "warm_up"}
        for name in ("reference", "critic_model", "reward_model", "rollout_data_dir", "validation_data_dir"):
            values[name] = None if values[name] is None else str(values[name])
        if self.rollout_correction is not None:
            values["rollout_correction"] = asdict(self.rollout_correction)
        policies = {name: policy.as_json() for name, policy in self.policies.items()}
        return json.dumps(values | {"model": str(self.model), "policies": policies}, default=dict)

    @property
    def correction(self) -> RolloutCorrection | None:
        """The off-policy correction that holds."""
        if self.rollout_correction is None and self.steps_ahead:
            return RolloutCorrection()
        return self.rollout_correction

    @property
    def clip_ratios(self) -> tuple[float, float]:
        """The bounds of the ratio that hold, below and above."""
        low, high = CLIP_RATIOS.get(self.policy_loss, CLIP_RATIOS["vanilla"])
        return (
            low if self.clip_ratio_low is None else self.clip_ratio_low,
            high if self.clip_ratio_high is None else self.clip_ratio_high,
        )

    @property
    def normalisation(self) -> LossNormalisation:
        """The loss normalisation that holds."""
        if self.loss_normalisation is not None:
            return self.loss_normalisation
        if self.advantage == "dr_grpo":
            return "constant"
        return "sequence" if self.policy_loss == "gspo" else "token"


def options_of(text: str) -> dict[str, Any]:
    """Keyword arguments of a :class:`VerlConfig` that has the options of :meth:`VerlConfig.as_json`."""
    values: dict[str, Any] = json.loads(text)
    if values["rollout_correction"] is not None:
        values["rollout_correction"] = RolloutCorrection(**values["rollout_correction"])
    if values["engine"] == "verl":  # of 0.2.0: verl's own trainer, whose updates were these
        values["engine"] = "ray"
    values["policies"] = {name: AgentPolicy(**policy) for name, policy in values.get("policies", {}).items()}
    return values
