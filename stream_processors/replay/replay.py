"""The spans of the log, through the same assembler, by other rules."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from lightstream.runtime.logs import logged_ids_of
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.records import AssemblySpec, AttemptClosed, AttemptOpened, SpanRecord, Trajectory
from lightstream.schemas.topics import SPANS

from ..core.assembly import KEEP_ALL, Assembler, AssemblyRules
from ..core.segments import Segment, segments_of, transitions_of
from .comparison import Merge
from .late_rollouts import LateRollouts, RolloutOffsets, ranges_of, rollout_of
from .log import AttemptKey, LogEntry, Selection, TopicReader
from .reward_rule import ReplayedAttempt, RewardRule, Rewards, RuleErrors, checked_rewards, reward_again

logger = logging.getLogger(__name__)

MERGES = ("prefix", "none")
"""Calls become one sequence while a prompt continues the previous ids exactly; or each call stays alone."""


@dataclass(frozen=True, slots=True)
class ReplayRules:
    """By which rules.

    Attributes:
        assembly: rules of the assembler, for rollouts without rules of their own.
        instead: rules that hold for every rollout, in place of its own.
        reward: computes rewards in place of those that were recorded; ``None`` keeps these.
        errors_max: in so many attempts the reward rule may fail; ``None``: in all.
        merge: one of :data:`MERGES`; ``tokens_max`` is the longest merged sequence.

    Raises:
        SettingsError: there is no such merge.
    """

    assembly: AssemblyRules = field(default_factory=AssemblyRules)
    reward: RewardRule | None = None
    merge: str = "prefix"
    tokens_max: int | None = None
    errors_max: int | None = None
    instead: AssemblySpec | None = None

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
    """Assembles every attempt that was selected and has closed: once, with the late spans it takes.

    Reads each partition twice, and the rollouts that late spans came for once more. Holds what is open in one, as the
    assembler does, or of the rollouts with late spans some 64 MiB of the log; with a reward rule also their spans; and
    of every rollout where it lies.

    Attributes:
        open_count: attempts that were still open at the end of their partition.
        undecodable: records of ``spans`` that could not be decoded.
        rule_errors: in how many attempts the reward rule failed, and the first of these.
        left_out: records, and trajectories, that could not be assembled; the log says which.
    """

    def __init__(self, settings: Settings, rules: ReplayRules, selection: Selection | None = None) -> None:
        self._settings = settings
        self._rules = rules
        self._selection = selection or Selection()
        self.rule_errors = RuleErrors(rules.errors_max)
        self.open_count = 0
        self.undecodable = 0
        self.left_out = 0

    def trajectories(self) -> Iterator[Trajectory]:
        """The newest revision of each: in every partition first of the rollouts without late spans, in log order.

        Raises:
            ServiceUnavailableError: Kafka does not answer.
            SettingsError: the reward rule fails too often.
        """
        reader = TopicReader(self._settings, SPANS)
        for partition in reader.partitions:
            late = LateRollouts(self._rules.assembly.late_spans_max)
            for entry in filter(self._selection.opens, reader.records(partition, self._selection.from_unix_nano)):
                late.add(entry)
            yield from self._without_late_spans(reader, partition, late)
            for batch in late.batches():
                yield from self._with_late_spans(reader, partition, batch)
        self.undecodable = reader.undecodable

    def _without_late_spans(self, reader: TopicReader, partition: int, late: LateRollouts) -> Iterator[Trajectory]:
        reading = _Reading(partition, self._rules, self.rule_errors, kept_max=0)
        for entry in filter(self._selection.opens, reader.again(partition, late.everything)):
            if rollout_of(entry.record) not in late:
                yield from self._rewarded(reading, reading.on_entry(entry))
        self._count(reading)

    def _with_late_spans(
        self, reader: TopicReader, partition: int, batch: Mapping[str, RolloutOffsets]
    ) -> Iterator[Trajectory]:
        reading = _Reading(partition, self._rules, self.rule_errors, kept_max=KEEP_ALL)
        newest: dict[AttemptKey, Trajectory] = {}
        for entry in filter(self._selection.opens, reader.again(partition, ranges_of(batch.values()))):
            if rollout_of(entry.record) in batch:
                newest |= {_key(trajectory): trajectory for trajectory in reading.on_entry(entry)}
        newest |= {_key(trajectory): trajectory for trajectory in reading.revisions()}
        yield from self._rewarded(reading, newest.values())
        self._count(reading)

    def _rewarded(self, reading: _Reading, trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
        for trajectory in trajectories:
            if self._selection.has(trajectory):
                yield reading.rewarded(trajectory)
            else:
                reading.forget(trajectory)

    def _count(self, reading: _Reading) -> None:
        self.open_count += reading.assembler.open_count
        self.left_out += reading.left_out


class RewardsAgain:
    """A rule's rewards for attempts, to put on their trajectories as a trainer consumed them.

    Reads the run's spans once, when it is made.

    Args:
        attempts: of which the rule is asked.
        errors_max: as for :class:`ReplayRules`.

    Attributes:
        errors: in how many attempts the rule failed, and the first of these. Their rewards are missing.

    Raises:
        ServiceUnavailableError: Kafka does not answer.
        SettingsError: the rule fails too often; or the log has no longer all that an attempt was assembled from.
    """

    def __init__(
        self,
        settings: Settings,
        run_id: str,
        rule: RewardRule,
        attempts: frozenset[AttemptKey],
        errors_max: int | None,
    ) -> None:
        self._outcomes: dict[AttemptKey, Rewards | Exception] = {}

        def kept(attempt: ReplayedAttempt) -> Rewards:
            try:
                rewards = rule(attempt)
                checked_rewards(rewards, attempt.trajectory)
            except Exception as error:
                self._outcomes[_key(attempt.trajectory)] = error
                raise
            self._outcomes[_key(attempt.trajectory)] = rewards
            return rewards

        rules, selection = ReplayRules(reward=kept, errors_max=errors_max), Selection(run_id=run_id, attempts=attempts)
        replay = Replay(settings, rules, selection)
        for _ in replay.trajectories():
            pass
        self.errors = replay.rule_errors
        for outcome in self._outcomes.values():
            if isinstance(outcome, Exception):
                outcome.__traceback__ = None  # it holds an attempt's spans
        if missing := attempts - self._outcomes.keys():
            raise SettingsError(
                f"{len(missing)} of {len(attempts)} attempts, such as {min(missing)[1]!r}, cannot be assembled again: "
                "their spans have left the log, or cannot be read. A reward rule reads them.",
                next_step="Begin after a later step (--at), or leave them out (--without).",
            )

    def __call__(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory with the rule's rewards; of single calls, those that it has.

        Raises:
            KeyError: the rule was not asked about this attempt.
        """
        outcome = self._outcomes[_key(trajectory)]
        calls = {None, *(triplet.call_index for triplet in trajectory.triplets)}

        def again(_: ReplayedAttempt) -> Rewards:
            if isinstance(outcome, Exception):
                raise outcome
            if isinstance(outcome, Mapping):  # by the newest revision, which may have calls that this one lacks
                return {call: reward for call, reward in outcome.items() if call in calls}
            return outcome

        return reward_again(again, ReplayedAttempt(trajectory, ()), trajectory.credit)


class _Reading:
    """Some rollouts of a partition through an assembler, and with a reward rule the spans of those not yet rewarded.

    Args:
        kept_max: spans, and bytes, of closed attempts to keep for late spans.
    """

    def __init__(self, partition: int, rules: ReplayRules, errors: RuleErrors, kept_max: int) -> None:
        self._errors = errors
        self.assembler = Assembler(
            partition, rules.assembly, kept_spans_max=kept_max, kept_bytes_max=kept_max, instead=rules.instead
        )
        self._rules = rules
        self._spans: dict[AttemptKey, list[SpanRecord]] = {}
        self.left_out = 0

    def on_entry(self, entry: LogEntry) -> list[Trajectory]:
        """Take a record; returns the trajectory it completes, if any."""
        record = entry.record
        if not isinstance(record, SpanRecord | AttemptOpened | AttemptClosed):
            return []
        if self._rules.reward is not None:
            key = rollout_of(record), record.attempt_id or ""
            if isinstance(record, AttemptOpened):
                self._spans.setdefault(key, [])
            elif isinstance(record, SpanRecord) and key in self._spans:
                self._spans[key].append(record)
        try:
            return self.assembler.on_record(record, entry.offset, entry.logged_unix_nano)
        except Exception:  # the worker set it aside, too: one span must not end the replay of all others
            with logged_ids_of(record):
                logger.exception("offset %d is left out", entry.offset)
            self.left_out += 1
            return []

    def revisions(self) -> Iterator[Trajectory]:
        """The newest revision of each attempt that was revised."""
        for revised in self.assembler.take_revised():
            try:
                yield revised.trajectory()
            except Exception:  # as above
                with logged_ids_of(revised):
                    logger.exception("no revision of %s", revised.attempt_id)
                self.left_out += 1

    def rewarded(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory with the rule's rewards; as it is where another attempt follows, as it has no calls then."""
        spans = self.forget(trajectory)
        if self._rules.reward is None or not trajectory.final:
            return trajectory
        attempt = ReplayedAttempt(trajectory, spans)
        count = partial(self._errors.add, trajectory.rollout_id)
        return reward_again(self._rules.reward, attempt, trajectory.credit, count)

    def forget(self, trajectory: Trajectory) -> list[SpanRecord]:
        """The spans that were kept for the rule, which are kept no longer."""
        return self._spans.pop(_key(trajectory), [])


def _key(trajectory: Trajectory) -> AttemptKey:
    return trajectory.rollout_id, trajectory.attempt_id
