"""The sums that are kept with the rows are those of a fold over the raw tables, whatever the log and its cuts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lightstream.schemas.packing import pack_int32
from lightstream.schemas.records import (
    AttemptState,
    AttemptStatus,
    ConsumedTrajectory,
    Drop,
    DropReason,
    EventKind,
    Record,
    RolloutMode,
    RolloutSpec,
    RolloutState,
    RolloutStatus,
    StepOutcome,
    TrainingStep,
    Trajectory,
    TripletRecord,
    Verdict,
    VerdictOutcome,
)
from lightstream.schemas.topics import ROLLOUTS, TRAINING_STEPS, TRAJECTORIES, Topic
from lightstream.store_views.materialiser import summaries
from lightstream.store_views.materialiser.arrow_rows import LoggedRecord, arrow_table
from lightstream.store_views.tables import tables_of
from tests.store_views.log_file import open_view
from tests.support.examples import examples

ROLLOUTS_OF_RUNS = """
SELECT run_id, mode, status, count(*) AS rollouts, sum(attempts)::BIGINT AS attempts
FROM (
    SELECT run_id, mode, status, len(attempts) AS attempts
    FROM rollout_states
    WHERE status <> 'unknown'
    QUALIFY row_number() OVER (
        PARTITION BY rollout_id ORDER BY source_offset DESC, log_offset DESC, log_partition DESC
    ) = 1
)
GROUP BY ALL ORDER BY ALL
"""
CALLS_OF_RUNS = """
SELECT run_id, mode, fate, reason, count(*), sum(prompt)::BIGINT, sum(response)::BIGINT
FROM (
    SELECT run_id, mode, 'triplet' AS fate, '' AS reason, prompt_token_count AS prompt, response_token_count AS response
    FROM triplets
    UNION ALL SELECT run_id, mode, 'dropped', reason, 0, 0 FROM assembler_drops WHERE is_llm_call
)
GROUP BY ALL ORDER BY ALL
"""
ASSEMBLED = """
WITH latest AS (
    SELECT * FROM trajectories_raw
    QUALIFY row_number() OVER (PARTITION BY rollout_id, attempt_id ORDER BY revision DESC, log_offset) = 1
), assembled AS (
    SELECT * REPLACE (
        final AND attempt_sequence = max(attempt_sequence) FILTER (final) OVER (PARTITION BY rollout_id) AS final
    )
    FROM latest
)
"""
REWARDS_OF_RUNS = """
SELECT
    run_id, mode, count(*), count(reward) FILTER (isfinite(reward)),
    coalesce(sum(reward) FILTER (isfinite(reward)), 0)
FROM assembled WHERE final GROUP BY ALL ORDER BY ALL
"""
GROUPS = """
SELECT run_id, mode, group_id, count(*), count(reward), min(reward), max(reward)
FROM assembled WHERE final AND group_id IS NOT NULL GROUP BY ALL ORDER BY ALL
"""
TRAINED = """
SELECT run_id, count(DISTINCT rollout_id), sum(triplet_count)::BIGINT FROM trained GROUP BY ALL ORDER BY ALL
"""
REASONS = """
, usable AS (
    SELECT rollout_id, attempt_id, count(*) AS triplets, count(*) FILTER (isfinite(reward)) AS rewarded
    FROM triplets GROUP BY ALL
), last_consumed AS (
    SELECT * FROM consumed_raw
    QUALIFY row_number() OVER (PARTITION BY rollout_id ORDER BY log_offset DESC, item_index) = 1
), ended AS (
    SELECT run_id FROM training_steps_raw WHERE outcome <> 'discarded' GROUP BY run_id
    HAVING arg_max(steps_planned, log_offset) > 0 AND arg_max(step, log_offset) >= arg_max(steps_planned, log_offset)
)
SELECT rollout.run_id, rollout.mode, rollout.rollout_id, CASE
    WHEN consumed.rollout_id IS NULL THEN CASE
        WHEN rollout.mode <> 'train' THEN 'not_for_training'
        WHEN rollout.status = 'cancelled' THEN 'cancelled'
        WHEN made.rollout_id IS NULL THEN 'not_assembled'
        WHEN triplets IS NULL THEN if(rollout.status = 'failed', 'attempt_failed', 'no_calls')
        WHEN rewarded = 0 THEN if(rollout.status = 'failed', 'attempt_failed', 'no_reward')
        WHEN rollout.run_id IN (FROM ended) THEN 'after_the_end'
        WHEN (SELECT count(*) FROM assembled AS other
              WHERE other.final AND coalesce(other.group_id, other.rollout_id)
                  = coalesce(rollout.group_id, rollout.rollout_id)) < rollout.group_size THEN 'group_incomplete'
        ELSE 'not_consumed'
    END
    WHEN consumed.triplet_count = 0 AND consumed.not_trained['stale'] > 0 THEN 'stale'
    WHEN consumed.outcome = 'discarded' THEN 'step_discarded'
    WHEN consumed.outcome = 'unchanged' THEN 'step_unchanged'
    WHEN rollout.status = 'failed' THEN 'attempt_failed'
    WHEN triplets IS NULL THEN 'no_calls'
    ELSE 'no_weight'
END AS reason_code
FROM rollouts AS rollout
LEFT JOIN (FROM assembled WHERE final) AS made ON made.rollout_id = rollout.rollout_id
LEFT JOIN usable ON usable.rollout_id = made.rollout_id AND usable.attempt_id = made.attempt_id
LEFT JOIN last_consumed AS consumed ON consumed.rollout_id = rollout.rollout_id
WHERE rollout.status IN ('succeeded', 'failed', 'cancelled')
    AND rollout.rollout_id NOT IN (SELECT rollout_id FROM trained)
ORDER BY ALL
"""
"""The definitions: slow, over every record there ever was."""

KEPT = {
    ROLLOUTS_OF_RUNS: """
        SELECT run_id, mode, status, sum(rollouts)::BIGINT, sum(attempts)::BIGINT FROM run_rollouts
        GROUP BY ALL HAVING sum(rollouts) <> 0 ORDER BY ALL""",
    CALLS_OF_RUNS: "SELECT * FROM calls_by_reason ORDER BY ALL",
    ASSEMBLED + REWARDS_OF_RUNS: """
        SELECT run_id, mode, sum(trajectories)::BIGINT, sum(rewarded)::BIGINT, sum(reward_sum) FROM run_rewards
        GROUP BY ALL HAVING sum(trajectories) <> 0 ORDER BY ALL""",
    ASSEMBLED + GROUPS: """
        SELECT run_id, mode, group_id, trajectories, rewarded, reward_min, reward_max FROM groups ORDER BY ALL""",
    TRAINED: "SELECT run_id, sum(rollouts)::BIGINT, sum(calls)::BIGINT FROM run_trained GROUP BY ALL ORDER BY ALL",
    ASSEMBLED + REASONS: "SELECT run_id, mode, rollout_id, reason_code FROM reason_codes ORDER BY ALL",
}

CRASH, RESTART = "crash", "restart"


def spec(number: int) -> RolloutSpec:
    """Six rollouts of two runs, some in groups, every two enqueued at one time."""
    return RolloutSpec(
        rollout_id=f"r{number}",
        run_id=f"run{number % 2}",
        mode=RolloutMode.VAL if number == 5 else RolloutMode.TRAIN,
        group_id=None if number == 4 else f"g{number % 2}",
        group_size=2 + number % 2,
        enqueued_unix_nano=1 + number // 2,
    )


@dataclass(frozen=True, slots=True)
class State:
    rollout: int
    status: RolloutStatus
    source_offset: int
    attempts: int

    def record(self) -> RolloutState:
        attempts = [
            AttemptState(attempt_id=f"a{i}", sequence=i, status=AttemptStatus.RUNNING, started_unix_nano=1)
            for i in range(self.attempts)
        ]
        return RolloutState(
            rollout=spec(self.rollout),
            status=self.status,
            attempts=attempts,
            updated_unix_nano=1,
            source_offset=self.source_offset,
            verdict=Verdict(event_id="e", kind=EventKind.ENQUEUED, outcome=VerdictOutcome.APPLIED),
        )


@dataclass(frozen=True, slots=True)
class Assembled:
    """Revisions may be repeated (with other content, which does not count), skipped, or come late."""

    rollout: int
    attempt: int
    revision: int
    final: bool
    reward: float | None
    prompts: list[int] = field(default_factory=list[int])
    drops: list[tuple[DropReason, bool]] = field(default_factory=list[tuple[DropReason, bool]])

    def record(self) -> Trajectory:
        of = spec(self.rollout)
        return Trajectory(
            rollout_id=of.rollout_id,
            attempt_id=f"a{self.attempt}",
            attempt_sequence=self.attempt + 1,
            revision=self.revision,
            run_id=of.run_id,
            mode=of.mode,
            group_id=of.group_id,
            status=AttemptStatus.SUCCEEDED,
            rollout_status=RolloutStatus.SUCCEEDED,
            final=self.final,
            reward=self.reward,
            opened_unix_nano=10 * self.rollout + self.attempt,
            triplets=[
                TripletRecord(
                    call_index=i,
                    span_id=f"{i:016x}",
                    trace_id="0" * 32,
                    reward=self.reward,
                    prompt_token_ids=pack_int32(range(length)),
                    response_token_ids=pack_int32(range(2 * length)),
                    response_mask=bytes(2 * length),
                )
                for i, length in enumerate(self.prompts)
            ],
            drops=[Drop(span_id="0" * 16, reason=reason, is_llm_call=is_call) for reason, is_call in self.drops],
        )


@dataclass(frozen=True, slots=True)
class Step:
    """A training step that consumed these rollouts, and gave each so many calls a weight; others were stale."""

    step: int
    outcome: StepOutcome
    consumed: list[tuple[int, int, bool]]

    def record(self) -> TrainingStep:
        consumed = [
            ConsumedTrajectory(
                rollout_id=f"r{rollout}",
                attempt_id="a0",
                revision=0,
                group_id=spec(rollout).group_id or f"r{rollout}",
                triplet_count=calls,
                not_trained={"stale": 1} if is_stale else {},
            )
            for rollout, calls, is_stale in self.consumed
        ]
        return TrainingStep(
            trainer_id="t",
            run_id=f"run{self.step % 2}",
            step=self.step,
            steps_planned=3,
            outcome=self.outcome,
            consumed=consumed,
            started_unix_nano=1,
            ended_unix_nano=2,
        )


Event = State | Assembled | Step
"""A record that comes in."""


class View:
    """A file, and where its log stands: a rollout's records are all of one partition."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database = open_view(path)
        topics = (ROLLOUTS.name, TRAJECTORIES.name, TRAINING_STEPS.name)
        self._next = {(topic, partition): 0 for topic in topics for partition in (0, 1)}

    def append(self, events: Sequence[Event], *, crash: bool) -> None:
        """One transaction; with ``crash`` one that fails at its end, and is made again after a restart."""
        offsets = dict(self._next)
        logged: dict[type[Record], list[LoggedRecord]] = {}
        for event in events:
            topic, partition = _place(event)
            record = event.record()
            offset = offsets[topic.name, partition]
            logged.setdefault(type(record), []).append(LoggedRecord(record, partition, offset, 1))
            offsets[topic.name, partition] = offset + 1
        tables = {table.name: arrow_table(table, rows) for kind, rows in logged.items() for table in tables_of(kind)}
        tables = {name: rows for name, rows in tables.items() if len(rows)}
        if crash:
            with pytest.raises(duckdb.Error):
                self._database.append(tables, {**offsets, (ROLLOUTS.name, 2**40): 1})
            self.restart()
        self._database.append(tables, offsets)
        self._next = offsets

    def restart(self) -> None:
        self._database.close()
        self._database = open_view(self._path)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self._database.cursor().execute(sql).fetchall()

    def close(self) -> None:
        self._database.close()


def _place(event: Event) -> tuple[Topic, int]:
    if isinstance(event, Step):
        return TRAINING_STEPS, 0
    return ROLLOUTS if isinstance(event, State) else TRAJECTORIES, event.rollout % 2


def assembled(rollout: int, attempt: int, *rest: Any) -> Assembled:
    """Of two rollouts the first attempt was retried; the others were put back into the queue after their end."""
    revision, *others = rest
    return Assembled(rollout, attempt, revision, attempt == 1 or rollout % 3 > 0, *others)


DROPS = st.tuples(st.sampled_from([DropReason.NO_TOKEN_IDS, DropReason.TOO_LARGE]), st.booleans())
EVENTS = (
    st.builds(State, st.integers(0, 5), st.sampled_from(RolloutStatus), st.integers(0, 6), st.integers(0, 3))
    | st.builds(
        assembled,
        st.integers(0, 5),
        st.integers(0, 1),
        st.integers(0, 2),
        st.none() | st.sampled_from([0.0, 0.5, 1.0, -2.0, float("inf")]),
        st.lists(st.integers(0, 3), max_size=3),
        st.lists(DROPS, max_size=3),
    )
    | st.builds(
        Step,
        st.integers(0, 3),
        st.sampled_from([StepOutcome.UPDATED, StepOutcome.UNCHANGED, StepOutcome.DISCARDED]),
        st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.booleans()), max_size=4),
    )
)
ENDED = (State(1, RolloutStatus.SUCCEEDED, 1, 1), assembled(1, 0, 0, 1.0, [1], []))
BATCHES = st.lists(st.lists(EVENTS, max_size=12), min_size=1, max_size=5)
INTERRUPTIONS = st.lists(st.sampled_from([None, None, None, None, CRASH, RESTART]), min_size=5, max_size=5)


@settings(deadline=None, max_examples=6)
@given(batches=BATCHES, interruptions=INTERRUPTIONS)
@example(batches=[[assembled(4, 1, 0, 0.0, [], [])], [assembled(4, 0, 0, 1.0, [], [])]], interruptions=[None] * 5).via(
    "the trajectory of the first attempt comes after that of the next one"
)
@example(batches=[[*ENDED], [Step(0, StepOutcome.UPDATED, [(1, 0, True)])]], interruptions=[None] * 5).via(
    "a step says something of a rollout whose reason was settled"
)
@example(
    batches=[[*ENDED], [assembled(3, 0, 0, 1.0, [1], []), assembled(5, 0, 0, 1.0, [1], [])]], interruptions=[None] * 5
).via("others complete a group after its reasons were settled")
def test_sums_are_those_of_a_fold_over_the_raw_tables(
    batches: list[list[Event]], interruptions: list[str | None]
) -> None:
    _compare(batches, interruptions)


@pytest.mark.soak
@settings(deadline=None, max_examples=examples(200))
@given(batches=BATCHES, interruptions=INTERRUPTIONS)
def test_sums_are_those_of_a_fold_over_many_histories(
    batches: list[list[Event]], interruptions: list[str | None]
) -> None:
    _compare(batches, interruptions)


def _compare(batches: list[list[Event]], interruptions: list[str | None]) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(summaries, "JOINED_AFTER", 1)  # changes become one row every other time
        patch.setattr(summaries, "SETTLED_AFTER", 3)  # reasons are settled after a transaction or two
        view = View(Path(folder) / "view.duckdb")
        for events, interruption in zip(batches, interruptions, strict=False):
            view.append(events, crash=interruption == CRASH)
            if interruption == RESTART:
                view.restart()
            for fold, kept in KEPT.items():
                assert view.rows(kept) == view.rows(fold), fold
            places = "SELECT rollout_id, attempt_id, log_partition, log_offset, final FROM {} ORDER BY ALL"
            defined = view.rows(ASSEMBLED + places.format("assembled"))
            assert view.rows(places.format("trajectories_latest")) == defined
            assert view.rows(places.format("trajectories")) == defined
        view.close()


def test_a_run_is_one_row_for_each_mode(tmp_path: Path) -> None:
    view = View(tmp_path / "view.duckdb")
    drops = [(DropReason.NO_TOKEN_IDS, True), (DropReason.NO_TOKEN_IDS, False)]
    view.append(
        [
            State(1, RolloutStatus.QUEUING, 0, 0),
            State(3, RolloutStatus.SUCCEEDED, 1, 2),
            State(5, RolloutStatus.RUNNING, 2, 1),
            Assembled(3, 0, 0, final=False, reward=None, drops=drops),
            Assembled(3, 1, 0, final=True, reward=0.5, prompts=[3, 4]),
        ],
        crash=False,
    )
    columns = (
        "rollouts, waiting, running, succeeded, failed, attempts, trajectories, rewarded, reward_mean, calls, triplets"
    )
    assert view.rows(f"SELECT run_id, mode, {columns}, prompt_tokens, response_tokens FROM runs ORDER BY mode") == [  # noqa: S608  # ours
        ("run1", "train", 2, 1, 0, 1, 0, 2, 1, 1, 0.5, 3, 2, 7, 14),
        ("run1", "val", 1, 0, 1, 0, 0, 1, 0, 0, None, 0, 0, 0, 0),
    ]
    assert view.rows("SELECT fate, reason, calls FROM calls_by_reason ORDER BY ALL") == [
        ("dropped", "no_token_ids", 1),
        ("triplet", "", 2),
    ]
    assert view.rows("SELECT group_id, trajectories, reward_mean, is_flat FROM groups") == [("g1", 1, 0.5, False)]
    view.append([Assembled(1, 0, 0, final=True, reward=0.5)], crash=False)
    assert view.rows("SELECT group_id, trajectories, reward_mean, is_flat FROM groups") == [("g1", 2, 0.5, True)]
    view.close()


def test_what_is_outdated_changes_nothing_although_nothing_else_came(tmp_path: Path) -> None:
    view = View(tmp_path / "view.duckdb")
    view.append([State(1, RolloutStatus.RUNNING, 5, 1), Assembled(1, 0, 1, final=True, reward=1.0)], crash=False)
    before = view.rows("FROM runs"), view.rows("FROM calls_by_reason")
    for late in (State(1, RolloutStatus.QUEUING, 2, 0), Assembled(1, 0, 0, final=False, reward=None, prompts=[3])):
        view.append([late], crash=False)
    assert (view.rows("FROM runs"), view.rows("FROM calls_by_reason")) == before
    view.close()
