"""The calls and rewards that spans report, before anything is decided about them: for adapters."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from lightstream.schemas.records import AttemptOpened, RolloutSpec, SpanRecord

from ..dialects import ReadCall, read_calls
from ..rewards import MatchedRewards, RewardReading, match_rewards
from ._buffer import AttemptBuffer
from ._calls import Observation
from ._deduplication import deduplicate
from ._reward_targets import index_calls
from ._rules import AssemblyRules
from ._tree import SpanKey, Tree, resolve


@dataclass(slots=True)
class AttemptReading:
    """The calls and rewards of an attempt, as the assembler reads them.

    Attributes:
        buffer: the spans, without repetitions.
        tree: the surroundings of each span.
        calls: in log order; each is the observation that is believed, with what other spans add to it.
        calls_at: span -> the calls that it describes (several where it holds several choices).
        wrappers, unattributed: spans of LLM kind that are not calls of their own, see ``Deduplicated``.
    """

    buffer: AttemptBuffer
    tree: Tree
    calls: list[Observation]
    calls_at: dict[SpanKey, list[Observation]] = field(default_factory=dict[SpanKey, list[Observation]])
    wrappers: frozenset[SpanKey] = frozenset()
    unattributed: frozenset[SpanKey] = frozenset()

    @property
    def rewards(self) -> list[RewardReading]:
        """Rewards in log order."""
        return self.buffer.rewards

    def match(self, calls: Sequence[Observation], rule: str) -> MatchedRewards:
        """Match the rewards to these calls (some of ``self.calls``, in log order)."""
        return match_rewards(self.buffer.rewards, index_calls(calls, self.buffer, self.tree, rule, self.calls), rule)


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
    buffer = AttemptBuffer(opened, -1, rules, read)
    for span, offset in log:
        buffer.add(span, offset)
    tree = resolve(buffer.nodes)
    deduplicated = deduplicate(buffer.observations, tree)
    reading = AttemptReading(
        buffer,
        tree,
        deduplicated.calls,
        wrappers=frozenset(wrapper.key for wrapper in deduplicated.wrappers),
        unattributed=frozenset(observation.key for observation in deduplicated.unattributed),
    )
    for call in deduplicated.calls:
        for observation in (call, *call.joined):
            reading.calls_at.setdefault(observation.key, []).append(call)
    return reading
