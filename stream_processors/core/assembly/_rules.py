"""The configurable rules of assembly, and its limits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Self

from lightstream.runtime.settings import Settings
from lightstream.schemas.assembly_rules import checked_expression, checked_match, is_credit_name
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.records import AssemblySpec

from ..credit import credit_rule
from ..rewards import automatic_rules

RULES_REMEMBERED_MAX = 256
"""Of runs that have rules of their own."""


@dataclass(frozen=True, slots=True)
class AssemblyRules:
    """Named rules and limits; recorded on each trajectory where they shape it.

    Attributes:
        credit: name of the credit rule (see ``core.credit``).
        reward_match: what a reward without a link is for: one of ``REWARD_MATCHES``.
        automatic_rewards: rewards for events in the spans, each added to the last call before it: ``tool_ok:0.1``,
            ``tool_error:-0.1``, ``exception:-0.5``, ``violation.high:-1``, or the user's ``module:function`` of a span.
        agents: regular expression; calls of agents it does not match (``re.search``) are dropped as
            ``agent_not_selected``. ``None`` keeps all.
        exclude_calls_in_rewards: drop calls made while computing a reward (a judge's) as ``inside_reward``.
        trajectory_bytes_max: estimated size of a trajectory, and so what an open attempt may hold of token data. Calls
            beyond it, in log order, are dropped as ``too_large``. 28 MiB leaves room below a 32 MiB record.
        attempt_spans_max: distinct spans (and conflicting ones) of an attempt, each about 1 KB of memory. Calls beyond
            it count as ``too_large``, and the trajectory says from where on.
        late_span_s_max: seconds from the opening of an attempt to when a span of it may at the latest be logged, to
            revise the attempt's trajectory.
        late_spans_max: late spans that an attempt takes, repeated ones counted: each may cost a revision with
            everything of before.
        functions_of_rollouts: whether a rollout may name a credit function of its own (``module:function``), which is
            then imported here.
        unusable: why the rules that a rollout has of its own cannot be used. Then all its rewards are missing: by
            other rules they would be wrong.

    Raises:
        SettingsError: a rule does not exist, or a limit or expression is unusable.
    """

    credit: str = "identical"
    reward_match: str = "trajectory"
    automatic_rewards: tuple[str, ...] = ()
    agents: str | None = None
    exclude_calls_in_rewards: bool = True
    trajectory_bytes_max: int = 28 * 1024 * 1024
    attempt_spans_max: int = 250_000
    late_span_s_max: float = 7 * 24 * 3600.0
    late_spans_max: int = 1000
    functions_of_rollouts: bool = False
    unusable: str = ""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The rules that the settings name; without a folder for large ones a trajectory takes at most 7/8 of a record.

        Raises:
            SettingsError: as the constructor.
        """
        in_record_bytes_max = settings.record_bytes_max * 7 // 8
        return cls(
            credit=settings.credit,
            reward_match=settings.reward_match,
            automatic_rewards=tuple(name.strip() for name in settings.automatic_rewards.split(",") if name.strip()),
            agents=settings.trained_agents,
            trajectory_bytes_max=min(settings.trajectory_bytes_max, in_record_bytes_max)
            if settings.large_records_dir is None
            else settings.trajectory_bytes_max,
            late_span_s_max=settings.late_span_s_max,
            functions_of_rollouts=settings.rollout_functions,
        )

    def __post_init__(self) -> None:
        credit_rule(self.credit)
        automatic_rules(self.automatic_rewards)
        try:
            checked_match(self.reward_match)
        except ValueError as error:
            raise SettingsError(f"reward_match is {self.reward_match!r}: {error}.") from error
        if self.trajectory_bytes_max < 1:
            raise SettingsError(f"trajectory_bytes_max is {self.trajectory_bytes_max}; it must be at least 1.")
        if self.agents is not None:
            try:
                checked_expression(self.agents)
            except ValueError as error:
                raise SettingsError(f"agents is {self.agents!r}: {error}.") from error

    def with_those_of(self, rollout: AssemblySpec | None, instead: AssemblySpec | None = None) -> AssemblyRules:
        """These rules, overridden by a rollout's own, and by ``instead``.

        Rules that cannot be used here, as a function in a module that this process does not find, leave these, and say
        so in ``unusable``.
        """
        own = {name: rule for spec in (rollout, instead) if spec is not None for name, rule in spec if rule is not None}
        if not own:
            return self
        credit = own.get("credit", self.credit)
        chosen_here = credit == self.credit or (instead is not None and credit == instead.credit)
        if not (self.functions_of_rollouts or chosen_here or is_credit_name(credit)):
            why = f"credit is {credit!r}, a function, which only LIGHTSTREAM_ROLLOUT_FUNCTIONS=true lets rollouts name"
            return replace(self, unusable=f"the rollout's own rules of assembly cannot be used: {why}")
        try:
            return _replaced(
                self,
                credit,
                own.get("reward_match", self.reward_match),
                own.get("trained_agents", self.agents),
            )
        except SettingsError as error:
            return replace(self, unusable=f"the rollout's own rules of assembly cannot be used: {error}")


@lru_cache(RULES_REMEMBERED_MAX)
def _replaced(rules: AssemblyRules, credit: str, reward_match: str, agents: str | None) -> AssemblyRules:
    return replace(rules, credit=credit, reward_match=reward_match, agents=agents)
