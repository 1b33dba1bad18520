"""The spans of the log, through the same assembler, by other rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.records import AttemptClosed, AttemptOpened, SpanRecord, Trajectory
from lightstream.schemas.settings import Settings
from lightstream.schemas.topics import SPANS

from ..core.assembly import Assembler, AssemblyRules
from ..core.segments import Segment, segments_of, transitions_of
from .history import Merge
from .kept_spans import KeptSpans
from .log import TopicReader
from .reward_rule import ReplayedAttempt, RewardRule, reward_again

__all__ = ["MERGES", "Replay", "ReplayRules"]

MERGES = ("prefix", "none")
"""How calls become sequences: one where a prompt continues the previous ids exactly; or each call alone."""


@dataclass(frozen=True, slots=True)
class ReplayRules:
    """By which rules.

    Attributes:
        assembly: rules of the assembler: credit, reward match, automatic rewards, agents.
        reward: computes rewards in place of those that were recorded; ``None`` keeps these.
        merge: one of :data:`MERGES`; ``tokens_max`` is the longest merged sequence.

    Raises:
        SettingsError: there is no such merge.
    """

    assembly: AssemblyRules = field(default_factory=AssemblyRules)
    reward: RewardRule | None = None
    merge: str = "prefix"
    tokens_max: int | None = None

    def __post_init__(self) -> None:
        if self.merge not in MERGES:
            raise SettingsError(f"there is no merge {self.merge!r}.", next_step=f"Use one of {list(MERGES)}.")

    @property
    def segments(self) -> Merge:
        """The merge as a function."""
        if self.merge == "none":
            return transitions_of
        merge: partial[list[Segment]] = partial(segments_of, tokens_max=self.tokens_max)
        return merge


class Replay:
    """Assembles every attempt that opened since ``from_unix_nano`` and has closed, and what late spans made of it.

    Reads partition by partition and holds what is open in one, as the assembler does, and what late spans came for;
    with a reward rule also the spans. A late span counts where its attempt was still held when it came.

    Attributes:
        open_count: attempts that were still open at the end of their partition.
        undecodable: records of ``spans`` that could not be decoded.
    """

    def __init__(self, settings: Settings, rules: ReplayRules, from_unix_nano: int = 0) -> None:
        self._settings = settings
        self._rules = rules
        self._from_unix_nano = from_unix_nano
        self.open_count = 0
        self.undecodable = 0

    def trajectories(self) -> Iterator[Trajectory]:
        """The trajectories, partition by partition in log order.

        Raises:
            ServiceUnavailableError: Kafka does not answer.
        """
        reader = TopicReader(self._settings, SPANS)
        for partition in reader.partitions:
            assembler = Assembler(partition, self._rules.assembly)
            kept = KeptSpans()
            for record, offset in reader.records(partition, self._from_unix_nano):
                if not isinstance(record, SpanRecord | AttemptOpened | AttemptClosed):
                    continue
                if self._rules.reward is not None:
                    kept.add(record)
                for trajectory in assembler.on_record(record, offset):
                    yield self._rewarded(trajectory, kept)
            for trajectory in assembler.take_revisions():
                yield self._rewarded(trajectory, kept)
            self.open_count += assembler.open_count
        self.undecodable = reader.undecodable

    def _rewarded(self, trajectory: Trajectory, kept: KeptSpans) -> Trajectory:
        if self._rules.reward is None:
            return trajectory
        spans = kept.of((trajectory.rollout_id, trajectory.attempt_id))
        return reward_again(self._rules.reward, ReplayedAttempt(trajectory, spans), self._rules.assembly.credit)
