"""Credit assignment: the share that each call of a trajectory gets of its rewards.

Hierarchical assignment as in Agent Lightning (arXiv 2508.03680, section 3.3) gives every call of a trajectory the
trajectory's reward; token-level credit is then the algorithm's. The others are the usual alternatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.records import Drop, DropReason, RewardMatch, RewardRecord, Trajectory
from lightstream.schemas.valid_text import valid_text

from .rewards import is_reward
from .user_function import is_function_name, user_function


class CreditStep(NamedTuple):
    """One call of a trajectory, in log order.

    Attributes:
        kept: it became a triplet. What a rule gives to a call that was dropped is ignored.
        reward: the call's own reward, by link or log order; ``None`` without one.
        agent_name: who made the call, where that is known.
        added: what automatic rewards add to whatever a rule gives the call; ``None`` without any.
    """

    kept: bool
    reward: float | None = None
    agent_name: str | None = None
    added: float | None = None


CreditRule = Callable[[Sequence[CreditStep], float | None], Sequence[float | None]]
"""(calls, reward of the whole trajectory or ``None``) -> one value per call, without what is ``added`` to it; ``None``
is missing, never 0.0.
Pure: the same arguments give the same values, for a trajectory is assembled again after a crash."""


def _identical(steps: Sequence[CreditStep], trajectory: float | None) -> list[float | None]:
    """A call's own reward where it has one, else the trajectory's."""
    return [trajectory if step.reward is None else step.reward for step in steps]


def _identical_plus_own(steps: Sequence[CreditStep], trajectory: float | None) -> list[float | None]:
    """The trajectory's reward and the call's own together: for rewards of single steps besides that of the outcome."""
    return [_sum(trajectory, step.reward) for step in steps]


def _sum(a: float | None, b: float | None) -> float | None:
    return b if a is None else a if b is None else a + b


def _last_call_only(steps: Sequence[CreditStep], trajectory: float | None) -> list[float | None]:
    """The trajectory's reward goes to the last call kept; the others have only rewards of their own."""
    values = [step.reward for step in steps]
    last = next((i for i in range(len(steps) - 1, -1, -1) if steps[i].kept), None)
    if last is not None and values[last] is None:
        values[last] = trajectory
    return values


def _discounted(discount: float) -> CreditRule:
    def rule(steps: Sequence[CreditStep], trajectory: float | None) -> list[float | None]:
        """Return to go: own rewards plus ``discount`` times the next call's return; the trajectory's comes at the end.

        The rewards of a dropped call count for the call kept before it. Without any reward all values are missing.
        """
        values: list[float | None] = [None] * len(steps)
        if trajectory is None and all(step.reward is None and step.added is None for step in steps):
            return values
        following, own = 0.0, trajectory or 0.0
        for index in range(len(steps) - 1, -1, -1):
            step = steps[index]
            own += step.reward or 0.0
            if step.kept:
                value = own + discount * following
                following, own = value + (step.added or 0.0), 0.0
                values[index] = value
            else:
                own += step.added or 0.0
        return values

    return rule


_RULES: dict[str, CreditRule] = {
    "identical": _identical,
    "identical_plus_own": _identical_plus_own,
    "last_call_only": _last_call_only,
}


def register_credit_rule(name: str, rule: CreditRule) -> None:
    """Make a rule known by name, in this process; other processes find one by ``module:function``.

    Raises:
        SettingsError: the name is taken, empty, or starts with ``discounted``. Nothing changed.
    """
    if not name or name in _RULES or name.startswith("discounted"):
        raise SettingsError(
            f"a credit rule cannot be named {name!r}.", next_step=f"Choose a name other than {credit_rule_names()}."
        )
    _RULES[name] = rule


def credit_rule_names() -> list[str]:
    """Names that :func:`credit_rule` takes."""
    return [*sorted(_RULES), "discounted:<0..1>", "module:function", "file.py:function"]


def credit_rule(name: str) -> CreditRule:
    """The rule of that name: a built-in one, ``discounted:0.95``, a registered one, or the user's ``module:function``.

    Raises:
        SettingsError: there is no such rule.
    """
    if name in _RULES:
        return _RULES[name]
    kind, _, argument = name.partition(":")
    if kind == "discounted":
        try:
            discount = float(argument)
        except ValueError:
            discount = math.nan
        if 0.0 <= discount <= 1.0:
            return _discounted(discount)
    elif is_function_name(name):
        return user_function(name)
    raise SettingsError(f"there is no credit rule {name!r}.", next_step=f"Use one of {credit_rule_names()}.")


def assign(name: str, steps: Sequence[CreditStep], trajectory: float | None) -> tuple[list[float | None], str | None]:
    """The value of each step by the rule of that name plus additions, and the fault of the rule, if any.

    A user's rule that raises, or gives no number within float32 or ``None`` for each step, gives nothing, and so does
    one whose values with what is added are beyond it: every value is missing, and the second item says why. So one bad
    rule costs rewards, not trajectories.

    Raises:
        SettingsError: there is no such rule.
    """
    rule = credit_rule(name)
    try:
        values = list(rule(steps, trajectory))
        numbers = [None if value is None else float(value) for value in values]
    except Exception as error:  # noqa: BLE001  # the user's code; reported on the trajectory
        return [None] * len(steps), valid_text(f"credit rule {name!r} raised {type(error).__name__}: {error}"[:500])
    if len(numbers) != len(steps):
        return [None] * len(steps), f"credit rule {name!r} gave {len(numbers)} values for {len(steps)} calls"
    values = [_sum(number, step.added) for number, step in zip(numbers, steps, strict=True)]
    bad = next((value for value in values if value is not None and not is_reward(value)), None)
    if bad is not None:
        return [None] * len(steps), f"credit rule {name!r} gave {bad}, not a finite number within float32"
    return values, None


def with_rewards(
    trajectory: Trajectory, whole: float | None, by_call: Mapping[int, float], credit: str, name: str
) -> Trajectory:
    """The trajectory with these rewards in place of its own, and the credit of each call.

    Args:
        whole: reward of the whole trajectory; ``None`` is missing.
        by_call: ``call_index`` -> the call's own reward.
        credit: name of the credit rule.
        name: what the rewards are recorded under.

    Raises:
        SettingsError: there is no such credit rule.
    """
    triplets = trajectory.triplets
    steps = [CreditStep(kept=True, reward=by_call.get(t.call_index), agent_name=t.agent_name) for t in triplets]
    values, problem = assign(credit, steps, whole)
    records = [RewardRecord(name=name, value=whole, span_id="")] if whole is not None else []
    records += [
        RewardRecord(name=name, value=value, span_id="", call_index=call, match=RewardMatch.LINK)
        for call, value in sorted(by_call.items())
    ]
    drops = trajectory.drops
    if problem is not None:
        drops = [*drops, Drop(span_id="", is_llm_call=False, reason=DropReason.BAD_REWARD, detail=problem)]
    return trajectory.model_copy(
        update={
            "reward": whole,
            "rewards": records,
            "credit": credit,
            "triplets": [
                triplet.model_copy(update={"reward": value}) for triplet, value in zip(triplets, values, strict=True)
            ],
            "drops": drops,
        }
    )
