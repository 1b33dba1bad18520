"""Options of the in-process VERL algorithm."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal
from urllib.parse import SplitResult, urlsplit

from lightstream.schemas.errors import SettingsError

from ...loop.options import LoopOptions
from ...rollouts.batch import LOSS_NORMALISATIONS, AgentPolicy, LossNormalisation
from ...run.option import conflicts, declared, needs, option
from .correction import RolloutCorrection
from .warm_up import WarmUp

POLICY_LOSSES = ("vanilla", "gspo", "cispo", "gpg", "dppo_tv", "dppo_kl")
"""Those of verl's whose value for a token follows from its own row and advantage: how a batch is cut is no matter."""

CLIP_RATIOS = {"vanilla": (0.2, 0.2), "gspo": (3e-4, 4e-4), "cispo": (1.0, 0.2)}
"""Loss -> bounds of the ratio by its paper (PPO's, arXiv:2507.18071, arXiv:2506.13585); no ratio is below 1 - 1."""

GAP_MEASURES = {"float32": "logprob_diff_max", "bfloat16": "logprob_diff_mean"}
"""Type -> the metric that is bounded. In bfloat16, single tokens are off by 1 and more with the same weights."""

OF_CRITIC = (needs("advantage", "gae", why="which has no critic"),)

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

    Each has its sentence where it is declared; ``docs/options.md`` lists them by group.
    """

    model: str | Path = option(
        "",
        "folder or name, as for `from_pretrained`",
        verl="actor_rollout_ref.model.path",
    )
    learning_rate: float = option(
        1e-6,
        "of AdamW",
        verl="actor_rollout_ref.actor.optim.lr",
        above=0.0,
    )
    weight_decay: float = option(
        0.01,
        "of AdamW",
        verl="actor_rollout_ref.actor.optim.weight_decay",
        verl_critic=("critic.optim.weight_decay",),
    )
    lr_warmup_steps: int = option(
        0,
        "steps in which the rate rises",
        least=0,
        verl_critic=("critic.optim.lr_warmup_steps",),
    )
    gradient_norm_max: float = option(
        1.0,
        "longer gradients are scaled to this norm",
        verl=("actor_rollout_ref.actor.grad_clip", "actor_rollout_ref.actor.optim.clip_grad"),
        verl_critic=("critic.grad_clip", "critic.optim.clip_grad"),
    )
    lr_schedule: Literal["constant", "cosine"] = option(
        "constant",
        "`cosine` falls to `learning_rate_min_ratio` of the rate at the last step. Warm-up and schedule count"
        " every step, also one that changed no weights",
        verl="actor_rollout_ref.actor.optim.lr_scheduler_type",
        choices=("constant", "cosine"),
        verl_critic=("critic.optim.lr_scheduler_type",),
    )
    learning_rate_min_ratio: float = option(
        0.1,
        "share of the rate that `cosine` ends with",
        verl="actor_rollout_ref.actor.optim.min_lr_ratio",
        verl_critic=("critic.optim.min_lr_ratio",),
    )
    clip_ratio_low: float | None = option(
        None,
        "the probability ratio is clipped below 1 minus this: 0.2; 3e-4 for `gspo`; none for `cispo`",
        shown="by `policy_loss`",
        verl="actor_rollout_ref.actor.clip_ratio_low",
        least=0.0,
    )
    clip_ratio_high: float | None = option(
        None,
        "and above 1 plus this: 0.2; 4e-4 for `gspo`; 0.2 for `cispo`. GSPO's bounds are narrower than the "
        "error of a server in bfloat16: give it a `rollout_correction`",
        shown="by `policy_loss`",
        verl="actor_rollout_ref.actor.clip_ratio_high",
        least=0.0,
    )
    dual_clip: float | None = option(
        None,
        "bound of the ratio where the advantage is negative, above 1 (3 in its paper, arXiv:1912.09729, and "
        "in verl); of `vanilla` alone",
        verl="actor_rollout_ref.actor.clip_ratio_c",
        above=1.0,
    )
    loss_normalisation: LossNormalisation | None = option(
        None,
        "unit that weighs the same: each `token`, `rollout` or `sequence`. `constant` divides by the number "
        "of rollouts times `response_tokens_max` (Dr. GRPO). Rollouts and rows count as they were enqueued, "
        "also if they do not train",
        shown="`token`; `constant` for `dr_grpo`, `sequence` for `gspo`",
        choices=(None, *LOSS_NORMALISATIONS),
        verl_critic=("critic.loss_agg_mode",),
    )
    policy_loss: str = option(
        "vanilla",
        'verl\'s objective: `vanilla`, `gspo` (with `loss_normalisation="sequence"`, unless given), `cispo`, '
        "`gpg`, `dppo_tv`, `dppo_kl` (the clip ratios bound a divergence). verl's others are refused: "
        "[design](design/training.md#weights-not-modes)",
        verl="actor_rollout_ref.actor.policy_loss.loss_mode",
        choices=POLICY_LOSSES,
        refused=POLICY_LOSSES_REFUSED,
    )
    kl_loss_type: str = option(
        "low_var_kl",
        "verl's name of the KL's estimator in the loss: `kl`, `abs`, `mse`, `low_var_kl`, `k1` …; `k3+` has "
        "the value of `k3` and the gradient of `k2`",
        choices=(*KL_TYPES, *(f"{name}+" for name in KL_TYPES)),
    )
    kl_reward_type: str = option(
        "kl",
        "verl's name of the KL's estimator in the reward",
        choices=KL_TYPES,
    )
    reference: str | Path | None = option(
        None,
        "another folder with the reference's weights, which takes the memory of a second model, in `dtype`; or "
        "the URL of a server that has it ([distillation](training.md#distillation))",
        shown="the run's first weights",
    )
    lora_rank: int = option(
        0,
        "train an adapter of this rank alone (peft). Any server can serve it, because servers get merged "
        "weights. A checkpoint holds the adapter with its optimiser",
        verl="actor_rollout_ref.model.lora_rank",
        least=0,
    )
    lora_alpha: int = option(
        16,
        "its alpha",
        verl="actor_rollout_ref.model.lora_alpha",
        least=1,
    )
    lora_target_modules: str | Sequence[str] = option(
        "all-linear",
        'its layers: all linear ones, or a list (`["q_proj", "v_proj"]`)',
        verl="actor_rollout_ref.model.target_modules",
    )
    mini_batches_per_step: int = option(
        1,
        "mini-batches of a step; the step has this many updates times `epochs_per_step`",
        least=1,
        verl_critic=("critic.ppo_mini_batch_size",),
    )
    epochs_per_step: int = option(
        1,
        "passes over the rows of a step",
        verl="actor_rollout_ref.actor.ppo_epochs",
        least=1,
        verl_critic=("critic.ppo_epochs",),
    )
    tokens_per_micro_batch: int = option(
        16_384,
        "most tokens of one pass, with padding; bounds memory",
        verl="actor_rollout_ref.actor.ppo_max_token_len_per_gpu",
        least=1,
    )
    rows_per_micro_batch: int | None = option(
        None,
        "most rows of one pass",
        verl="actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
        least=1,
    )
    chunked_logits: bool = option(
        False,
        "compute the logits 256 tokens at a time, and again in the backward pass, so that they are never "
        "there as a whole; not of models that look at images",
        verl="actor_rollout_ref.model.use_fused_kernels",
    )
    packed_rows: bool | None = option(
        None,
        "compute rows one after another, without padding, where the model keeps them apart",
        shown="on a GPU in `bfloat16`",
        verl="actor_rollout_ref.model.use_remove_padding",
    )
    offload_parameters: bool = option(
        False,
        "between passes, keep parameters and gradients in the machine's memory instead of the GPU's",
        verl="actor_rollout_ref.actor.fsdp_config.param_offload",
        verl_critic=("critic.fsdp.param_offload",),
    )
    offload_optimizer: bool = option(
        False,
        "the same for the optimiser's state",
        verl="actor_rollout_ref.actor.fsdp_config.optimizer_offload",
        verl_critic=("critic.fsdp.optimizer_offload",),
    )
    offload_reference: bool = option(
        False,
        "the same for the reference",
        verl="actor_rollout_ref.ref.fsdp_config.param_offload",
    )
    device: Literal["auto", "cpu", "cuda"] = option(
        "auto",
        "`auto` takes a GPU if there is one",
        choices=("auto", "cpu", "cuda"),
    )
    dtype: Literal["float32", "bfloat16"] = option(
        "float32",
        "type of the forward pass; weights and optimiser are float32. Give the model server the same "
        "(`LIGHTSTREAM_POLICY_DTYPE`, or vLLM's `--dtype`)",
        verl="actor_rollout_ref.actor.fsdp_config.dtype",
        choices=("float32", "bfloat16"),
        verl_critic=("critic.fsdp.dtype",),
    )
    threads: int | None = option(
        None,
        "processor threads. The same number repeats results to the bit; a tiny model on a busy machine takes 1",
        shown="torch's",
    )
    gradient_checkpointing: bool = option(
        False,
        "compute activations again in the backward pass, to save memory",
        verl="actor_rollout_ref.model.enable_gradient_checkpointing",
        verl_critic=("critic.model.enable_gradient_checkpointing",),
    )
    processes: int = option(
        1,
        "processes that hold the model together, a GPU each ([more](training.md#a-model-in-several-processes))",
        least=1,
    )
    engine: Literal["auto", "process", "ray"] = option(
        "auto",
        "`ray`: Ray starts even a single process",
        choices=("auto", "process", "ray"),
    )
    nodes: int = option(
        1,
        "machines over which Ray divides the processes, equally many on each; with 1, Ray places them where "
        "there is room",
        least=1,
    )
    placement_wait_s: float = option(
        120.0,
        "how long to wait for a cluster of Ray's that has too few GPUs (or processors) free: 0 ends at once, "
        "`inf` waits as long as it takes. The error says how many are missing",
        least=0.0,
    )
    gamma: float = option(
        1.0,
        "discount of `gae`, by sampled token ([more](training.md#ppo-with-a-critic))",
        verl="algorithm.gamma",
        least=0.0,
        most=1.0,
        rules=OF_CRITIC,
    )
    lam: float = option(
        1.0,
        "λ of `gae`",
        verl="algorithm.lam",
        least=0.0,
        most=1.0,
        rules=OF_CRITIC,
    )
    critic_model: str | Path | None = option(
        None,
        "first weights of the critic, with `gae`",
        shown="the run's first weights",
        verl="critic.model.path",
        rules=OF_CRITIC,
    )
    critic_learning_rate: float = option(
        1e-5,
        "of the critic",
        verl="critic.optim.lr",
        above=0.0,
        rules=OF_CRITIC,
    )
    value_clip: float = option(
        0.5,
        "bound of a value's move in a step",
        verl="critic.cliprange_value",
        above=0.0,
        rules=OF_CRITIC,
    )
    critic_warmup_steps: int = option(
        0,
        "first steps in which the critic learns alone",
        least=0,
        rules=OF_CRITIC,
    )
    reward_model: str | Path | None = option(
        None,
        "a frozen model that gives each rollout its reward ([more](training.md#reward-models))",
        rules=(conflicts("advantage_per", "turn", why="while a reward_model gives a rollout one reward"),),
    )
    rollout_correction: RolloutCorrection | None = option(
        None,
        '`RolloutCorrection(rollout_is="token", rollout_is_threshold=2.0, rollout_rs=None, '
        "rollout_rs_threshold=None)`: verl's correction for rollouts of older policies, or of a server that "
        "computes differently (below)",
        shown="none, or with steps ahead per token",
    )
    warm_up: WarmUp | None = option(
        None,
        "called with the model before the first rollout: `teach_answers(prompts, answers)`",
    )

    def __post_init__(self) -> None:
        LoopOptions.__post_init__(self)
        if not str(self.model):
            raise SettingsError(
                "VERL has no model.", next_step="Name one: model=..., or verl's actor_rollout_ref.model.path."
            )
        if self.processes % self.nodes:
            raise SettingsError(
                f"VERL's processes are {self.processes}, which {self.nodes} nodes cannot share equally.",
                next_step="Take a multiple of the nodes.",
            )
        if self.advantage == "distillation" and self.reference is None:
            raise SettingsError(
                "VERL's advantage is 'distillation', and it has no reference.",
                next_step="Name the teacher: reference=FOLDER, or the URL of its server.",
            )
        if is_url(self.reference):
            self._check_teacher()
        if self.processes > 1 and self.engine == "process":
            raise SettingsError("VERL's engine is 'process'; there are auto, ray where processes are several.")
        if self.normalisation == "constant" and self.response_tokens_max is None:
            raise SettingsError(
                "VERL's constant normalisation divides by response_tokens_max, which is not given.",
                next_step="Give it the most tokens an answer may have (max_tokens of the sampling).",
            )

    def _check_teacher(self) -> None:
        for name, holds in (("processes", self.processes == 1), ("temperature", self.temperature == 1.0)):
            if not holds:
                raise SettingsError(
                    f"VERL's {name} is {getattr(self, name)}, and its reference a server's: 1 is needed.",
                    next_step="Name a folder with the reference's weights, which takes any.",
                )
        parts = urlsplit(str(self.reference))
        if not parts.hostname or parts.username is not None or not _has_port(parts):
            raise SettingsError(
                "VERL's reference is no address of a server, or has a user or password in it.",
                next_step="Name it like http://host:8000/v1; its key is OPENAI_API_KEY.",
            )

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


CRITIC_OPTIONS = tuple(name for name, of in declared(VerlConfig).items() if of.rules == OF_CRITIC)
"""Options of ``advantage="gae"`` alone."""


def _has_port(parts: SplitResult) -> bool:
    """Whether the port of an address is a number, or is not there."""
    try:
        return parts.port is None or parts.port > 0
    except ValueError:
        return False


def is_url(reference: object) -> bool:
    """Whether a reference is a server, and no folder."""
    return isinstance(reference, str) and reference.startswith(("http://", "https://"))


def options_of(text: str) -> dict[str, Any]:
    """Keyword arguments of a :class:`VerlConfig` that has the options of :meth:`VerlConfig.as_json`."""
    values: dict[str, Any] = json.loads(text)
    if values["rollout_correction"] is not None:
        values["rollout_correction"] = RolloutCorrection(**values["rollout_correction"])
    if values["engine"] == "verl":  # of 0.2.0: verl's own trainer, whose updates were these
        values["engine"] = "ray"
    values["awaited_rewards"] = tuple(values.get("awaited_rewards", ()))
    values["policies"] = {name: AgentPolicy(**policy) for name, policy in values.get("policies", {}).items()}
    return values
