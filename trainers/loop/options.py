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
    conflicts("advantage", "distillation", why="which learns from every rollout, whatever its reward"),
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

    Each has its sentence where it is declared; ``docs/options.md`` lists them by group.
    """

    steps: int = option(
        0,
        "number of steps; give `steps` or `epochs`",
        verl="trainer.total_training_steps",
        least=0,
    )
    epochs: int | None = option(
        None,
        "passes over the tasks, in place of `steps`",
        verl="trainer.total_epochs",
    )
    tasks_per_step: int = option(
        8,
        "tasks of a step; each is one group",
        verl="data.train_batch_size",
        least=1,
    )
    rollouts_per_task: int = option(
        8,
        "rollouts of each task: the size of a group",
        verl="actor_rollout_ref.rollout.n",
        least=1,
    )
    steps_ahead: int = option(
        0,
        "with k, rollouts for step n + k start while step n is made. Tokens more than k versions old, or of "
        "an unknown version, do not train",
        least=0,
    )
    stale: Literal["wait", "drop"] = option(
        "wait",
        "`wait`: every group trains, and a step waits for groups that would be too old in the next one. "
        "`drop` gives these up and enqueues others. It is quicker where a few rollouts take long, but long "
        "tasks then train less",
        choices=("wait", "drop"),
    )
    over_sampling: int = option(
        0,
        'with `stale="drop"`: extra groups in progress',
        least=0,
        rules=(needs("stale", "drop", why="so that the groups of a step are waited for"),),
    )
    group_min: int | None = option(
        None,
        "at its deadline, a group trains if it has at least this many rollouts; otherwise the step skips it. "
        "none: it needs all",
    )
    group_deadline_s: float | None = option(
        None,
        "seconds without progress until that deadline: no new rollout of the group, or of an earlier one. "
        "none: `timeout_seconds` times `max_attempts`, plus 120",
        above=0.0,
    )
    refill_silent_groups: int = option(
        0,
        "groups of a step that groups of other tasks may replace, because all their rewards are equal (DAPO's "
        "dynamic sampling)",
        least=0,
        rules=REFILL_RULES,
    )
    advantage: Advantage = option(
        "grpo",
        "`grpo`: the reward minus the group's mean, divided by its standard deviation. `group_mean`: not "
        "divided. `dr_grpo`: the same, and the loss is not divided by lengths. `rloo`: the reward minus the "
        "mean of the group's other rewards. `remax`: the reward minus that of one more, greedy rollout of the"
        " task (temperature 0, mode `test`), which does not train; an agent's `validation_rollout`, if it has"
        " one, makes it. `reinforce`: the reward itself. `reinforce_plus_plus`: the reward, whitened over the"
        " tokens of the step. `reinforce_plus_plus_baseline`: the same after subtracting the group's mean. "
        "`best_of_n`: 1 for the best of the group; nothing is learned from the others "
        "([more](training.md#fine-tuning-on-the-best-answers)). `distillation`: 0, so that the KL to `reference` alone "
        "moves the weights ([more](training.md#distillation)). `gae`: PPO with a critic "
        "([more](training.md#ppo-with-a-critic))",
    )
    advantage_per: AdvantagePer = option(
        "rollout",
        "`rollout`: all calls of a rollout share one advantage. `turn`: each call has the reward that credit "
        "assignment gave it, compared with the calls of the same number in the group",
    )
    reward_missing: MissingReward = option(
        "exclude",
        "a rollout without a reward: `exclude` leaves it out, `fill` gives it `reward_fill`, `fail_group` "
        "leaves out its group. Failures have no reward, so crashes go unpunished; use `fill`. Timeouts are "
        "retried only if `retry_condition` has `timeout`, as by default. The first failure of a run prints "
        "the rule",
    )
    reward_fill: float = option(
        0.0,
        "the reward that `fill` gives",
    )
    reward_dimensions: Mapping[str, float] = option(
        dict[str, float](),
        'names of rewards and their weights (`{"correct": 1.0, "brief": 0.2}`). Each is compared within the '
        "group by itself; then the advantages are summed",
        shown="the one reward",
    )
    awaited_rewards: Collection[str] = option(
        (),
        "names of rewards that a successful rollout needs before it counts, in training and validation, such "
        "as a judge's ([judges](judges.md)). Failed rollouts do not wait",
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
        "cost of the KL of a rollout's tokens, taken from its reward before rewards are compared; with `gae`,"
        " from the reward of each token",
        least=0.0,
        finite=True,
        rules=KL_RULES,
    )
    temperature: float = option(
        1.0,
        "of the agent's calls and of the actor. Calls at another one do not train "
        "([rule](contract.md#which-tokens-may-train))",
        verl="actor_rollout_ref.rollout.temperature",
        above=0.0,
    )
    sampling_parameters: Mapping[str, Any] = option(
        dict[str, Any](),
        "further parameters of the agent's calls, such as `max_tokens`. `top_p`, `top_k`, `min_p` and "
        "penalties are refused, because they change the distribution. Calls that set them anyway do not train",
    )
    logprob_gap_max: float | None = option(
        None,
        "largest difference of log-probabilities between actor and model server, on tokens of the current "
        "version. Beyond it, the step learns nothing and is `discarded` with its `cause`. In float32 the "
        "largest difference counts, in bfloat16 the mean. Infinity: no limit",
        shown="0.1",
        least=0.0,
    )
    prompt_tokens_max: int | None = option(
        None,
        "longest prompt; see `overlong`",
        verl="data.max_prompt_length",
        least=1,
    )
    response_tokens_max: int | None = option(
        None,
        "longest response; see `overlong`",
        verl="data.max_response_length",
        least=1,
    )
    overlong: Overlong = option(
        "exclude",
        "`exclude`: longer calls, and calls that were cut off (finish reason `length`), do not train. "
        "`truncate`: they train up to the limit. Both count in the mean of their group",
        choices=("exclude", "truncate"),
    )
    policies: Mapping[str, AgentPolicy] = option(
        dict[str, AgentPolicy](),
        "adapters of the model, one for each policy of a system of agents ([more](training.md#several-policies))",
        rules=POLICY_RULES,
    )
    resource_name: str = option(
        "main_llm",
        "name of the model among the agent's resources",
    )
    served_model: str | None = option(
        None,
        "name at the model server: version 7 of run `digits` is `digits@7`. The server refuses two runs with one name",
        shown="the run's name",
    )
    keep_checkpoints: int = option(
        4,
        "steps whose weights stay in `.lightstream/checkpoints/<run_id>`, each a Hugging Face folder",
        verl="trainer.max_actor_ckpt_to_keep",
    )
    checkpoint_every: int = option(
        10,
        "steps from one checkpoint with the optimiser (in `.lightstream/recovery/<run_id>`) to the next. A "
        "restart makes later steps again, from the log, with the options that it is given",
        least=1,
    )
    validate_every: int = option(
        0,
        "steps between validations; one more comes before the first step, and one after the last. 0: none",
        least=0,
    )
    validation_samples: int = option(
        1,
        "rollouts of each validation task; with several, `validation/pass@k` is measured too",
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
        "folder for the generated text: `<step>.jsonl` for each step (of its last try). A line for each call:"
        " `input`, `output`, `score`, `step`, `group_id`, `rollout_id`, `call_index`, `task`",
        verl="trainer.rollout_data_dir",
    )
    validation_data_dir: str | Path | None = option(
        None,
        "the same for each validated policy (`0.jsonl`: the first)",
        verl="trainer.validation_data_dir",
    )
    steps_without_signal_max: int = option(
        3,
        "steps in a row without anything to train on that end the run; one is enough if every rollout failed",
        least=1,
    )
    reward_target: float | None = option(
        None,
        "end early once the mean reward of the last `reward_target_steps` steps is, on average, at least this",
    )
    reward_target_steps: int = option(
        5,
        "steps of that average",
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
        if self.advantage == "distillation" and not self.kl_loss_coefficient:
            raise SettingsError(
                "VERL's advantage is 'distillation', and its kl_loss_coefficient 0: nothing would move the weights.",
                next_step="Set kl_loss_coefficient=1.0, and reference to the teacher.",
            )
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
        """The fate of attempts that fail, in a sentence.

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
        """Whether the engine makes the advantages, token by token, from the rewards and a critic's expectations."""
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
