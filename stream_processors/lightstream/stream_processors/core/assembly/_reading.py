"""The calls and rewards that spans report, before anything is decided about them: for adapters."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from lightstream.schemas.records import AttemptOpened, RolloutSpec, SpanRecord

from ..dialects import ReadCall, read_calls
from ..rewards import MatchedRewards, RewardReading, match_rewards
from ._attempt import OpenAttempt
from ._held import Held
from ._index import index_calls
from ._joining import join
from ._observation import Observation
from ._rules import AssemblyRules
from ._tree import SpanKey, Tree, resolve

__all__ = ["AttemptReading", "read_attempt"]


@dataclass(slots=True)
class AttemptReading:
    """What the spans of an attempt say, as the assembler reads them.

    Attributes:
        held: the spans, without repetitions.
        tree: what each span is within.
        calls: in log order; each is the observation that is believed, with what other spans add to it.
        calls_at: span -> the calls that it describes (several where it holds several choices).
        wrappers, unattributed: spans of LLM kind that are not calls of their own, see ``Joined``.
    """

    held: Held
    tree: Tree
    calls: list[Observation]
    calls_at: dict[SpanKey, list[Observation]] = field(default_factory=dict[SpanKey, list[Observation]])
    wrappers: frozenset[SpanKey] = frozenset()
    unattributed: frozenset[SpanKey] = frozenset()

    @property
    def rewards(self) -> list[RewardReading]:
        """Rewards in log order."""
        return self.held.rewards

    def match(self, calls: Sequence[Observation], rule: str) -> MatchedRewards:
        """Match the rewards to these calls (some of ``self.calls``, in log order)."""
        return match_rewards(self.held.rewards, index_calls(calls, self.held, self.tree, rule, self.calls), rule)


def read_attempt(
    log: Iterable[tuple[SpanRecord, int]], read: Callable[[SpanRecord], list[ReadCall]] = read_calls
) -> AttemptReading:
    """Read the spans of one attempt.

    Args:
        log: (span, offset) in log order; whichever attempt they name, they count as one.
        read: finds the calls that a span describes.
    """
    opened = AttemptOpened(rollout=RolloutSpec(rollout_id="-"), attempt_id="-", attempt_sequence=1, opened_unix_nano=0)
    rules = AssemblyRules(trajectory_bytes_max=sys.maxsize, attempt_spans_max=sys.maxsize)
    attempt = OpenAttempt(opened, -1, rules, read)
    for span, offset in log:
        attempt.add(span, offset)
    held = attempt.held
    tree = resolve(held.nodes)
    joined = join(held.observations, tree)
    reading = AttemptReading(
        held,
        tree,
        joined.calls,
        wrappers=frozenset(wrapper.key for wrapper in joined.wrappers),
        unattributed=frozenset(observation.key for observation in joined.unattributed),
    )
    for call in joined.calls:
        for observation in (call, *call.joined):
            reading.calls_at.setdefault(observation.key, []).append(call)
    return reading
