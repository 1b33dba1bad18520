"""Spans that come behind the closing record: revisions, whoever makes them, however often and from wherever."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightstream.schemas.records import AttemptClosed, AttemptOpened, SourceRange, SpanRecord, Trajectory
from lightstream.stream_processors.core.assembly import KEEP_ALL, Assembler, AssemblyRules, AttemptKey, LateSpan
from tests.support.examples import examples

from .build import ROLLOUT, closed, framework_span, opened, proxy_span, reward_span
from .test_against_reference import random_attempt

AnyRecord = SpanRecord | AttemptOpened | AttemptClosed
Log = list[tuple[AnyRecord, int]]
SECOND = 1_000_000_000


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """One partition: a few attempts, interleaved, each with spans before and behind its closing record."""
    source = draw(st.randoms(use_true_random=False))
    stories: list[list[AnyRecord]] = []
    for number in range(draw(st.integers(1, 3))):
        rollout_id = f"r{number}"
        ids = {"rollout_id": rollout_id, "attempt_id": f"{rollout_id}-a1"}
        drawn = random_attempt(random.Random(source.randint(0, 2**32)))[:8]
        story: list[AnyRecord] = [span.model_copy(update=ids) for span in drawn]
        if story and source.random() < 0.3:
            story.append(source.choice(story))
        story.insert(source.randint(0, len(story)), closed(rollout_id))
        stories.append([opened(rollout_id), *story])
    log: Log = []
    while stories:
        story = source.choice(stories)
        log.append((story.pop(0), len(log)))
        stories = [left for left in stories if left]
    return log


def read_back(log: Log, late: Iterable[LateSpan]) -> list[Trajectory]:
    """What a reader of the log makes of late spans whose attempts are not held."""
    newest: dict[AttemptKey, LateSpan] = {span.key: span for span in late}
    assembler = Assembler(kept_spans_max=KEEP_ALL, kept_bytes_max=KEEP_ALL)
    for record, offset in log:
        rollout_id = record.rollout.rollout_id if isinstance(record, AttemptOpened) else record.rollout_id or ""
        span = newest.get((rollout_id, record.attempt_id or ""))
        places = [(0, offset)] if span is None or span.ranges is None else span.ranges
        if span is not None and offset <= span.offset and any(a <= offset <= b for a, b in places):
            assembler.on_record(record, offset)
    return assembler.take_revisions()


def run(log: Log, start: int, *, batch: int, held: int, until: int = KEEP_ALL) -> tuple[list[Trajectory], int]:
    """What a worker emits that reads from offset ``start`` and dies behind ``until``; and what it could commit."""
    assembler = Assembler(kept_spans_max=held, reads_back=True)
    out: list[Trajectory] = []
    committed = start
    todo = [(record, offset) for record, offset in log if start <= offset < until]
    for first in range(0, len(todo), batch):
        part = todo[first : first + batch]
        for record, offset in part:
            out += assembler.on_record(record, offset)
        out += assembler.take_revisions()
        out += read_back(log, assembler.take_to_read())
        committed = assembler.low_water(part[-1][1] + 1)
    return out, committed


def newest(trajectories: Iterable[Trajectory]) -> dict[str, Trajectory]:
    """Collapsed as consumers do it; two of one identity and revision must be equal."""
    seen: dict[tuple[str, int], Trajectory] = {}
    for trajectory in trajectories:
        assert seen.setdefault((trajectory.rollout_id, trajectory.revision), trajectory) == trajectory
    highest: dict[str, Trajectory] = {}
    for (rollout_id, _), trajectory in sorted(seen.items()):
        highest[rollout_id] = trajectory
    return highest


def content(trajectory: Trajectory) -> Trajectory:
    """All but which revision it is, and where it ends."""
    return trajectory.model_copy(update={"revision": 0, "source": SourceRange()})


@given(logs())
@settings(deadline=None, max_examples=examples(80))
def test_a_revision_is_what_would_have_been_made_had_the_attempt_closed_later(log: Log) -> None:
    closings = [record for record, _ in log if isinstance(record, AttemptClosed)]
    on_time: Log = [(record, offset) for record, offset in log if not isinstance(record, AttemptClosed)]
    on_time += [(record, len(log) + i) for i, record in enumerate(closings)]
    wanted = newest(Assembler().on_records(on_time))
    revised = newest(Assembler().on_records(log))
    assert {r: content(t) for r, t in revised.items()} == {r: content(t) for r, t in wanted.items()}


@given(logs(), st.integers(1, 5), st.sampled_from([0, 3, KEEP_ALL]), st.integers(1, 5), st.sampled_from([0, KEEP_ALL]))
@settings(deadline=None, max_examples=60)
def test_batches_memory_and_a_crash_at_any_position_change_nothing(
    log: Log, batch: int, held: int, batch_after: int, held_after: int
) -> None:
    whole = newest(Assembler().on_records(log))
    assert newest(run(log, 0, batch=batch, held=held)[0]) == whole
    for crash in range(len(log)):
        before, committed = run(log, 0, batch=batch, held=held, until=crash)
        after, _ = run(log, committed, batch=batch_after, held=held_after)
        assert newest([*before, *after]) == whole, f"crash before record {crash}"


def test_each_late_span_that_changes_something_is_one_revision() -> None:
    assembler = Assembler(7)
    records: list[AnyRecord] = [opened(), proxy_span(1), closed()]
    (first,) = assembler.on_records((r, o) for o, r in enumerate(records))
    assert (first.revision, first.reward) == (0, None)
    assert assembler.on_records([(proxy_span(1), 3)]) == [], "it was there before"
    (second,) = assembler.on_records([(reward_span(2, 0.5), 4)])
    assert (second.revision, second.reward, second.triplets[0].reward) == (1, 0.5, 0.5)
    assert assembler.on_records([(reward_span(2, 0.5), 5)]) == [], "it came twice"
    (third,) = assembler.on_records([(proxy_span(3), 6), (reward_span(4, 1.0), 7)])
    assert (third.revision, third.reward, len(third.triplets)) == (3, 1.0, 2)
    assert third.source == SourceRange(partition=7, first_offset=0, last_offset=7)
    assert third.final
    assert assembler.low_water(8) == 8


def test_a_late_span_of_the_framework_joins_the_call_that_the_proxy_recorded() -> None:
    late = framework_span(9, {"gen_ai.operation.name": "chat", "gen_ai.response.id": "resp-1", "agent.name": "writer"})
    assembler = Assembler()
    first, second = assembler.on_records([(opened(), 0), (proxy_span(1), 1), (closed(), 2), (late, 3)])
    assert first.triplets[0].agent_name is None
    (triplet,) = second.triplets
    assert (triplet.agent_name, triplet.joined_span_ids) == ("writer", [late.span_id])
    assert triplet.field_sources == {"agent_name": f"{late.span_id}:span"}
    assert second.call_count == 1


@pytest.mark.parametrize("final", [True, False])
def test_an_attempt_that_was_retried_is_revised_too(final: bool) -> None:
    records: list[AnyRecord] = [opened(), closed(final=final), proxy_span(1)]
    first, second = Assembler().on_records((r, o) for o, r in enumerate(records))
    assert (first.call_count, second.call_count) == (0, 1)
    assert (second.final, len(second.triplets)) == (final, int(final))


def test_what_comes_too_late_or_is_too_much_is_refused() -> None:
    rules = AssemblyRules(late_span_s_max=10.0, late_spans_max=2)
    assembler = Assembler(rules=rules)
    assembler.on_records([(opened(), 0), (closed(), 1)])
    assembler.on_record(proxy_span(1), 2, 11 * SECOND)
    assert (assembler.take_revisions(), assembler.refused_count) == ([], 1)
    for number in range(2, 5):
        assembler.on_record(proxy_span(number), number + 1, 10 * SECOND)
    (revision,) = assembler.take_revisions()
    assert (revision.revision, revision.call_count, assembler.refused_count) == (2, 2, 2)


def test_spans_read_again_from_before_the_end_are_not_late() -> None:
    """After a restart the log is read again: that must not use up the number of late spans."""
    assembler = Assembler(rules=AssemblyRules(late_spans_max=1))
    assembler.on_records([(opened(), 0), (proxy_span(1), 1), (closed(), 2)])
    for _ in range(3):
        assembler.on_record(proxy_span(1), 1, SECOND)
    assembler.on_record(proxy_span(2), 3, SECOND)
    (revision,) = assembler.take_revisions()
    assert (revision.revision, revision.call_count, assembler.refused_count) == (1, 2, 0)


def test_once_a_late_span_came_the_attempts_that_close_are_held() -> None:
    assembler = Assembler(reads_back=True)
    assembler.on_records([(opened(), 0), (closed(), 1), (proxy_span(1), 2)])
    assert [late.offset for late in assembler.take_to_read()] == [2]
    assembler.on_records([(opened("r2"), 3), (closed("r2"), 4)])
    (revision,) = assembler.on_records([(proxy_span(1, rollout_id="r2"), 5)])
    assert (revision.rollout_id, revision.revision, assembler.take_to_read()) == ("r2", 1, [])


def test_an_attempt_of_too_many_spans_says_from_where_on_they_are_left_out() -> None:
    rules = AssemblyRules(attempt_spans_max=2)
    records: list[AnyRecord] = [opened(), *(proxy_span(n) for n in (1, 2, 3, 1)), closed(), reward_span(4, 1.0)]
    (trajectory,) = Assembler(rules=rules).on_records((r, o) for o, r in enumerate(records))
    assert (trajectory.span_count, trajectory.call_count, trajectory.full_from_offset) == (2, 2, 3)


def test_of_attempts_that_are_not_held_it_says_where_they_lie() -> None:
    assembler = Assembler(kept_spans_max=0, reads_back=True)
    assembler.on_records([(opened(), 5), (proxy_span(1), 6), (closed(), 8)])
    assert assembler.on_records([(proxy_span(2), 20), (proxy_span(3, rollout_id="other"), 21)]) == []
    assembler.on_record(proxy_span(4), 30, 3)
    assert assembler.take_to_read() == [
        LateSpan((ROLLOUT, f"{ROLLOUT}-a1"), 20, 0, ((5, 8), (20, 20))),
        LateSpan(("other", "other-a1"), 21, 0, None),
        LateSpan((ROLLOUT, f"{ROLLOUT}-a1"), 30, 3, ((5, 8), (20, 20), (30, 30))),
    ]
    assert assembler.take_to_read() == []
