"""The configurable rules of assembly, and its limits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.settings import Settings

from ..credit import credit_rule
from ..rewards import REWARD_MATCHES, automatic_rules

__all__ = ["AssemblyRules"]


@dataclass(frozen=True, slots=True)
class AssemblyRules:
    """Named rules and limits; recorded on each trajectory where they shape it.

    Attributes:
        credit: name of the credit rule (see ``core.credit``).
        reward_match: what a reward without a link is for: one of ``core.rewards.REWARD_MATCHES``.
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
        )

    def __post_init__(self) -> None:
        credit_rule(self.credit)
        automatic_rules(self.automatic_rewards)
        if self.reward_match not in REWARD_MATCHES:
            raise SettingsError(
                f"there is no reward match {self.reward_match!r}.", next_step=f"Use one of {list(REWARD_MATCHES)}."
            )
        if self.trajectory_bytes_max < 1:
            raise SettingsError(f"trajectory_bytes_max is {self.trajectory_bytes_max}; it must be at least 1.")
        if self.agents is not None:
            try:
                re.compile(self.agents)
            except re.error as error:
                raise SettingsError(f"agents {self.agents!r} is not a valid regular expression: {error}.") from error
