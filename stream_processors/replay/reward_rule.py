"""A user's reward function, over past attempts, and how often it failed."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.records import Drop, DropReason, SpanRecord, Trajectory, TripletRecord
from lightstream.schemas.valid_text import valid_text

from ..core.credit import with_rewards
from ..core.messages import Conversation, read_conversation, text_of
from ..core.rewards import is_reward
from ..core.user_function import user_function


class RuleErrors:
    """Counts the failures of a rule, and ends the replay when there are too many.

    Args:
        allowed: how many there may be; ``None``: any number.

    Attributes:
        count: in how many attempts the rule failed.
        first: the first error: its rollout, text and line; empty if there was none.
    """

    def __init__(self, allowed: int | None) -> None:
        self._allowed = allowed
        self.count = 0
        self.first = ""

    def add(self, rollout_id: str, error: Exception) -> None:
        """Count a failure.

        Raises:
            SettingsError: it is one too many.
        """
        self.count += 1
        self.first = self.first or f"rollout {rollout_id}: {type(error).__name__}: {error}{_line(error)}"
        if self._allowed is not None and self.count > self._allowed:
            raise SettingsError(
                f"the reward rule failed in more than {self._allowed} attempts; the first was {self.first}",
                next_step="Fix the rule, or allow more with --errors-max.",
            ) from error


def _line(error: Exception) -> str:
    """The line where the rule raised; empty if it returned something that is no reward."""
    frames = traceback.extract_tb(error.__traceback__)[1:]  # behind the call of the rule
    if not frames or frames[0].name == checked_rewards.__name__:
        return ""
    return f" ({frames[-1].filename}, line {frames[-1].lineno})"


FUNCTION = "reward"
"""Name of the function where only a file is named."""
RECORDED_AS = "replay"


@dataclass(frozen=True, slots=True)
class ReplayedCall:
    """An LLM call that is training data. ``conversation`` has its messages, where its spans do."""

    triplet: TripletRecord
    conversation: Conversation | None

    @property
    def answer(self) -> str:
        """Text of the call's choice; empty where it is unknown."""
        if self.conversation is None:
            return ""
        return text_of(self.conversation.choice(self.triplet.choice_index).get("content"))


@dataclass(frozen=True, slots=True)
class ReplayedAttempt:
    """The argument of a rule: the trajectory as assembled again, and its spans in log order."""

    trajectory: Trajectory
    spans: Sequence[SpanRecord]

    @property
    def task(self) -> Any:
        """The rollout's input."""
        return json.loads(self.trajectory.input_json)

    @property
    def calls(self) -> list[ReplayedCall]:
        """The calls in log order."""
        by_id = {(span.trace_id, span.span_id): span for span in reversed(self.spans)}  # of repeated ones the first
        by_span = {span.span_id: span for span in reversed(self.spans)}
        found: list[ReplayedCall] = []
        for triplet in self.trajectory.triplets:
            spans = [by_id[triplet.trace_id, triplet.span_id], *(by_span[i] for i in triplet.joined_span_ids)]
            conversations = (read_conversation(span) for span in spans)
            found.append(ReplayedCall(triplet, next((c for c in conversations if c is not None), None)))
        return found


Rewards: TypeAlias = "float | Mapping[int | None, float | None] | None"
"""The attempt's reward (``None``: missing); or rewards by call index, under ``None`` that of the whole trajectory."""

RewardRule = Callable[[ReplayedAttempt], Rewards]
"""Called once for each attempt."""


def load_reward_rule(name: str) -> RewardRule:
    """The rule in ``file.py`` (its function ``reward``), ``file.py:function`` or ``module:function``.

    Raises:
        SettingsError: there is none.
    """
    rule: RewardRule = user_function(f"{name}:{FUNCTION}" if name.endswith(".py") else name)
    return rule


def reward_again(
    rule: RewardRule, attempt: ReplayedAttempt, credit: str, on_error: Callable[[Exception], None] | None = None
) -> Trajectory:
    """The trajectory with the rule's rewards.

    A rule that raises, or gives something other than a reward, leaves the rewards missing and a drop that says why.

    Args:
        on_error: called with the error.

    Raises:
        SettingsError: there is no such credit rule.
    """
    trajectory = attempt.trajectory
    try:
        whole, by_call = checked_rewards(rule(attempt), trajectory)
    except Exception as error:  # noqa: BLE001  # the user's code; reported on the trajectory
        if on_error is not None:
            on_error(error)
        bare = with_rewards(trajectory, None, {}, credit, RECORDED_AS)
        detail = valid_text(f"the reward rule failed: {type(error).__name__}: {error}"[:500])
        drop = Drop(span_id="", is_llm_call=False, reason=DropReason.BAD_REWARD, detail=detail)
        return bare.model_copy(update={"drops": [*bare.drops, drop]})
    return with_rewards(trajectory, whole, by_call, credit, RECORDED_AS)


def checked_rewards(value: object, trajectory: Trajectory) -> tuple[float | None, dict[int, float]]:
    """The reward of the whole trajectory, and of single calls by their index.

    Raises:
        SettingsError, TypeError, ValueError: it is no reward, or names a call that is not there.
    """
    calls = {triplet.call_index for triplet in trajectory.triplets}
    if not isinstance(value, Mapping):
        return _number(value), {}
    whole = _number(value.get(None))
    by_call: dict[int, float] = {}
    for call, reward in value.items():
        if call is None or reward is None:
            continue
        if call not in calls:
            raise SettingsError(f"it names call {call!r}; the attempt has {sorted(calls)}.")
        by_call[call] = _number(reward) or 0.0
    return whole, by_call


def _number(value: object) -> float | None:
    if value is None:
        return None
    number = float(value)  # type: ignore[arg-type]  # whatever the user's rule gave; a TypeError is reported
    if not is_reward(number):
        raise SettingsError(f"it gave {number}, not a finite number within float32.")
    return number
