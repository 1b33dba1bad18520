"""Options of a training loop."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.sampling import changed_sampling

from ..rollouts.batch import Advantage, AdvantagePer, AgentPolicy, MissingReward, Overlong, Scoring, check_policies
from ..run.history import MEAN_REWARDS_KEPT
from ..run.option import check_declared, conflicts, needs, option

GAP_MAX = 0.1
"""The same weights are about 1e-6 apart in float32, and 0.01 on average in bfloat16, where single tokens are by 1 and
more. Half the temperature, or another run's weights, make tenths on average."""

GAP_ADVICE = (
    "Nothing of the step is committed. Do both compute with the same weights (`resources_id` of the calls in "
    "`llm_calls`), at the same temperature, from the same template, in the same type (VERL(dtype=...), the "
    "server's)? A server that is meant to differ (say, in fp8) needs VERL(logprob_gap_max=...), and a "
    "rollout_correction."
)


REFILL_RULES = (
    conflicts(
        "advantage",
        "reinforce_plus_plus",
        "gae",
        why="which compares the rollouts of a step, whatever their groups: none of these is silent by itself",
    ),
)

KL_RULES = tuple(
    conflicts(
        other,
        why="while it changes the one reward of a rollout",
        next_step="Put the KL into the loss: kl_loss_coefficient.",
    )
    for other in ("reward_dimensions", "refill_silent_groups")
)

POLICY_RULES = (
    conflicts("advantage", "gae", why="which needs a critic, and policies have none each"),
    conflicts("lora_rank", why="while each policy has a lora_rank of its own"),
    conflicts("processes", why="while policies are trained in this process"),
    conflicts("engine", "ray", why="while policies are trained in this process"),
)


@dataclass(frozen=True, kw_only=True)
class LoopOptions:
    """Options of a training loop, whatever the engine.

    What each does is said where it is declared; ``docs/training.md`` has them in a table.
    """

    steps: int = option(
        0,
        "sizes; `epochs`, in place of `steps`, are passes over the tasks",
        verl="trainer.total_training_steps",
        least=0,
    )
    epochs: int | None = option(
        None,
        verl="trainer.total_epochs",
    )
    tasks_per_step: int = option(
        8,
        verl="data.train_batch_size",
        least=1,
    )
    rollouts_per_task: int = option(
        8,
        verl="actor_rollout_ref.rollout.n",
        least=1,
    )
    steps_ahead: int = option(
        0,
        "with k, rollouts run beside the update: no more than those of k + n steps are consumed or in "
        "progress while step n is made, and none is of a policy more than k versions old; a call with "
        "a token of an older policy, or of an unknown one, has no weight",
        least=0,
    )
    stale: Literal["wait", "drop"] = option(
        "wait",
        "a step waits for groups that would be too old in the next one; `drop` gives them up and asks "
        "for others, with `over_sampling` so many groups more in progress: quicker where a few "
        "rollouts take long, but what takes long is then trained on less",
        choices=("wait", "drop"),
    )
    over_sampling: int = option(
        0,
        least=0,
        rules=(needs("stale", "drop", why="so that the groups of a step are waited for"),),
    )
    group_min: int | None = option(
        None,
        "a group whose time is over is taken with at least so many rollouts (else skipped); a shorter "
        "time, in seconds without a rollout of it or of one before it",
    )
    group_deadline_s: float | None = option(
        None,
        above=0.0,
    )
    refill_silent_groups: int = option(
        0,
        "so many groups of a step that have one reward each are replaced by groups of other tasks",
        least=0,
        rules=REFILL_RULES,
    )
    advantage: Advantage = option(
        "grpo",
        "`group_mean`: not divided by the standard deviation; `dr_grpo`: nor is the loss by lengths; "
        "`rloo`; `remax`: the reward less that of a greedy rollout (temperature 0) of the same task, "
        "one more for each task, which is not trained on (mode `test`; an agent's "
        "`validation_rollout`, if it has one, makes it); `reinforce`: the reward itself; "
        "`reinforce_plus_plus`, and with the group's mean as a baseline "
        "`reinforce_plus_plus_baseline`: whitened over the tokens of the step; `gae`: PPO with a "
        "critic ([below](#ppo-with-a-critic))",
    )
    advantage_per: AdvantagePer = option(
        "rollout",
        "`turn`: each call has the reward that credit assignment gave it, compared with the calls of "
        "the same number in the group",
    )
    reward_missing: MissingReward = option(
        "exclude",
        "a rollout without a reward is left out; `fill`: has this one, so that a crash can be "
        "punished; `fail_group`: its group is left out. A failing agent leaves no reward, and an "
        "attempt that times out is tried again (`Trainer(rollout_config=...)`): without `fill`, and "
        "with `timeout` among its retries, a policy that crashes or loops is not punished. The first "
        "failure of a run prints which holds",
    )
    reward_fill: float = option(
        0.0,
    )
    reward_dimensions: Mapping[str, float] = option(
        dict[str, float](),
        'names of rewards and weights (`{"correct": 1.0, "brief": 0.2}`): each is compared within the '
        "group by itself, and the advantages are summed",
        shown="the one reward",
    )
    awaited_rewards: Collection[str] = option(
        (),
        "names of rewards that a rollout needs before it trains, as a judge gives them afterwards "
        "([judges](judges.md)). A rollout that failed does not wait",
        shown="none",
    )
    entropy_coefficient: float = option(
        0.0,
        "weight of the entropy bonus",
        verl="actor_rollout_ref.actor.entropy_coeff",
    )
    kl_loss_coefficient: float = option(
        0.0,
        "weight of the KL to a frozen reference policy in the loss. Every row is computed then",
        least=0.0,
        finite=True,
    )
    kl_reward_coefficient: float = option(
        0.0,
        "what the KL of a rollout's tokens costs, taken from its reward before rewards are compared; "
        "with `gae`, from the reward of each token",
        least=0.0,
        finite=True,
        rules=KL_RULES,
    )
    temperature: float = option(
        1.0,
        "of the agent's calls. `top_p`, `top_k`, `min_p` and penalties are refused: what is sampled "
        "so has other probabilities than the policy that is trained gives it. A call that has them "
        "all the same, or another temperature, is left out ([what may "
        "train](contract.md#which-tokens-may-train))",
        verl="actor_rollout_ref.rollout.temperature",
        above=0.0,
    )
    sampling_parameters: Mapping[str, Any] = option(
        dict[str, Any](),
    )
    logprob_gap_max: float | None = option(
        None,
        "a step learns nothing and is `discarded`, with its `cause`, where the log-probabilities of "
        "actor and model server differ by more on tokens of the current version: at most in float32, "
        "on average in bfloat16; infinity: whatever they are",
        shown="0.1",
        least=0.0,
    )
    prompt_tokens_max: int | None = option(
        None,
        "longer calls, and those that were cut off (finish reason `length`), are left out, or with "
        "`truncate` trained on up to there; they count in the mean of their group either way",
        verl="data.max_prompt_length",
        least=1,
    )
    response_tokens_max: int | None = option(
        None,
        verl="data.max_response_length",
        least=1,
    )
    overlong: Overlong = option(
        "exclude",
        choices=("exclude", "truncate"),
    )
    policies: Mapping[str, AgentPolicy] = option(
        dict[str, AgentPolicy](),
        "several adapters of the model, one for each policy of a system of agents ([below](#several-policies))",
        rules=POLICY_RULES,
    )
    resource_name: str = option(
        "main_llm",
        "names of the model for the agent, and at the model server: version 7 of run `digits` is "
        "`digits@7`. Two runs of one `served_model` are refused by the server",
    )
    served_model: str | None = option(
        None,
        shown="the run's name",
    )
    keep_checkpoints: int = option(
        4,
        "weights of the last steps in `.lightstream/checkpoints/<run_id>`, each a Hugging Face folder",
        verl="trainer.max_actor_ckpt_to_keep",
    )
    checkpoint_every: int = option(
        10,
        "steps from one checkpoint with the optimiser (in `.lightstream/recovery/<run_id>`) to the "
        "next. A restart makes the steps since the last one again, from the log, with the options "
        "that it is given",
        least=1,
    )
    validate_every: int = option(
        0,
        "validation before every so many steps, the first included, and after the last; with several "
        "samples of a task, `validation/pass@k` is measured too",
        least=0,
    )
    validation_samples: int = option(
        1,
        verl="actor_rollout_ref.rollout.val_kwargs.n",
        least=1,
    )
    validation_sampling_parameters: Mapping[str, Any] | None = option(
        None,
        'of validation rollouts, for example `{"temperature": 0, "max_tokens": 64}`',
        shown="as in training",
    )
    val_only: bool = option(
        False,
        "validate the run's latest policy on the tasks of `val_dataset`, once, and make no step",
        verl="trainer.val_only",
    )
    rollout_data_dir: str | Path | None = option(
        None,
        "folders for what was generated, as text: `<step>.jsonl` for each step (of its last try), and "
        "for each policy that was validated (`0.jsonl`: the first). A line for each call: `input`, "
        "`output`, `score`, `step`, `group_id`, `rollout_id`, `call_index`, `task`",
        verl="trainer.rollout_data_dir",
    )
    validation_data_dir: str | Path | None = option(
        None,
        verl="trainer.validation_data_dir",
    )
    steps_without_signal_max: int = option(
        3,
        "so many steps in a row of which nothing could be trained on end the run; one is enough where "
        "every rollout failed",
        least=1,
    )
    reward_target: float | None = option(
        None,
        "end early once the mean reward of the last steps is, on average, at least this",
    )
    reward_target_steps: int = option(
        5,
        least=1,
        most=MEAN_REWARDS_KEPT,
    )

    def __post_init__(self) -> None:
        check_declared(self)
        check_at_least(self, keep_checkpoints=self.steps_ahead + 2)  # rollouts of the oldest policy need its weights
        has_length = bool(self.steps) != (self.epochs is not None) and (self.epochs is None or self.epochs >= 1)
        if not (has_length or self.val_only):
            raise SettingsError(
                f"VERL's steps are {self.steps}, and its epochs {self.epochs}; either is needed, and at least 1.",
                next_step="verl's own keys are trainer.total_training_steps and trainer.total_epochs.",
            )
        if self.group_min is not None and not 1 <= self.group_min <= self.rollouts_per_task:
            raise SettingsError(
                f"VERL's group_min is {self.group_min}; 1 to rollouts_per_task ({self.rollouts_per_task}) is needed."
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
