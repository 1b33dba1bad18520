"""Crashes, repeated deliveries and changed order: the trajectories stay the same."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lightstream.schemas.records import AttemptClosed, AttemptOpened, SpanRecord, Trajectory
from lightstream.stream_processors.core.assembly import Assembler
from tests.support.examples import examples

from .build import assemble, closed, framework_span, opened, proxy_span, reward_span, span_id
from .test_against_reference import random_attempt

AnyRecord = SpanRecord | AttemptOpened | AttemptClosed
Log = list[tuple[AnyRecord, int]]
GAP = 10
"""Between offsets, so that repeated records fit in without moving the others."""


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """One partition: a few rollouts, some tried twice, with random spans, interleaved; the last may stay open.

    Openings may be there again, as a life cycle writes them that crashed.
    """
    source = draw(st.randoms(use_true_random=False))
    stories: list[list[AnyRecord]] = []
    for number in range(draw(st.integers(1, 4))):
        rollout_id = f"r{number}"
        story: list[AnyRecord] = []
        attempts = draw(st.integers(1, 2))
        for attempt in range(1, attempts + 1):
            spans = random_attempt(random.Random(source.randint(0, 2**32)))
            ids = {"rollout_id": rollout_id, "attempt_id": f"{rollout_id}-a{attempt}"}
            middle: list[AnyRecord] = [span.model_copy(update=ids) for span in spans[:8]]
            for _ in range(draw(st.sampled_from((0, 0, 1, 2)))):
                middle.insert(source.randint(0, len(middle)), opened(rollout_id, attempt))
            story += [opened(rollout_id, attempt), *middle]
            story.append(closed(rollout_id, attempt, final=attempt == attempts))
        stories.append(story)
    if draw(st.booleans()):
        stories[-1].pop()
    log: Log = []
    while stories:
        story = source.choice(stories)
        log.append((story.pop(0), len(log) * GAP))
        stories = [left for left in stories if left]
    return log


def by_identity(trajectories: Iterable[Trajectory]) -> dict[Any, Trajectory]:
    """Collapsed as consumers do it; two of one identity must be equal."""
    found: dict[Any, Trajectory] = {}
    for trajectory in trajectories:
        known = found.setdefault((trajectory.rollout_id, trajectory.attempt_id, trajectory.revision), trajectory)
        assert known == trajectory
    return found


@given(logs())
@settings(deadline=None, max_examples=60)
def test_a_crash_at_any_position_gives_the_same_trajectories(log: Log) -> None:
    whole = by_identity(Assembler(3).on_records(log))
    assembler = Assembler(3)
    before: list[Trajectory] = []
    for position, (record, offset) in enumerate(log):
        before += assembler.on_record(record, offset)
        committed = assembler.low_water(offset + 1)
        assert committed <= offset + 1
        again = Assembler(3).on_records((r, o) for r, o in log if o >= committed)
        assert by_identity([*before, *again]) == whole, f"crash after record {position}"


@given(logs(), st.lists(st.integers(0, 10**6), max_size=4))
@settings(deadline=None, max_examples=60)
def test_commits_that_lag_behind_and_crashes_again_and_again_change_nothing(log: Log, draws: list[int]) -> None:
    whole = by_identity(Assembler().on_records(log))
    out: list[Trajectory] = []
    committed = 0
    for draw in draws:
        assembler = Assembler()
        replay = [(r, o) for r, o in log if o >= committed]
        waters = [committed]
        for record, offset in replay[: draw % (len(replay) + 1)]:
            out += assembler.on_record(record, offset)
            waters.append(assembler.low_water(offset + 1))
        committed = waters[draw % len(waters)]
    out += Assembler().on_records((r, o) for r, o in log if o >= committed)
    assert by_identity(out) == whole


@given(logs(), st.integers(0, 2**32))
@settings(deadline=None, max_examples=examples(150))
def test_what_callers_hold_back_for_reasons_of_their_own_changes_nothing(log: Log, seed: int) -> None:
    chance = random.Random(seed)
    whole = by_identity(Assembler().on_records(log))
    out: list[Trajectory] = []
    committed = 0
    for _ in range(4):
        assembler = Assembler()
        replay = [(record, offset) for record, offset in log if offset >= committed]
        held_back: int | None = None
        for record, offset in replay[: chance.randrange(len(replay) + 1)]:
            out += assembler.on_record(record, offset)
            if chance.random() < (0.5 if held_back is None else 0.05):
                held_back = offset if held_back is None else None
            low_water = assembler.low_water(offset + 1, held_back)
            if chance.random() < 0.5:
                committed = low_water if held_back is None else min(low_water, assembler.not_between(held_back))
    out += Assembler().on_records((record, offset) for record, offset in log if offset >= committed)
    assert by_identity(out) == whole


@given(logs(), st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=12))
@settings(deadline=None, max_examples=examples(150))
def test_repeated_records_change_nothing(log: Log, repeats: list[tuple[int, int]]) -> None:
    whole = Assembler().on_records(log)
    offsets = {offset: record for record, offset in log}
    for first, later in repeats:
        record = log[first % len(log)][0]
        position = first % len(log) + later % (len(log) - first % len(log))
        taken = position * GAP
        while taken in offsets:
            taken += 1
        offsets[taken] = record
    repeated = sorted(offsets.items(), key=lambda item: item[0])
    assert by_identity(Assembler().on_records((r, o) for o, r in repeated)) == by_identity(whole)


@given(st.permutations(range(8)))
@settings(deadline=None, max_examples=60)
def test_the_order_of_delivery_decides_no_triplet_and_no_linked_reward(order: list[int]) -> None:
    spans = [
        *(proxy_span(n, [n], [n], parent=9) for n in range(1, 5)),
        framework_span(9, {"agent.name": "a"}),
        framework_span(11, {"gen_ai.response.id": "resp-2"}, name="openai.chat"),
        reward_span(12, 0.5, link={"span_id": span_id(3)}),
        reward_span(13, 1.0),
    ]

    def told(trajectory: Trajectory) -> dict[str, tuple[Any, ...]]:
        return {
            t.span_id: (t.prompt_token_ids, t.response_token_ids, t.agent_name, t.reward, t.joined_span_ids)
            for t in trajectory.triplets
        }

    assert told(assemble(*(spans[n] for n in order))) == told(assemble(*spans))


ODD_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8)
    | st.sampled_from(["[1, 2]", '{"choices": [{}]}', '{"choices": [{"token_ids": [1]}]}', "LLM", "[[1]]", "{'a': 1}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
KNOWN_NAMES = [
    "lightstream.prompt_token_ids",
    "lightstream.response_token_ids",
    "lightstream.response_logprobs",
    "lightstream.policy_version",
    "prompt_token_ids",
    "response_token_ids",
    "logprobs.content",
    "agentlightning.operation.output.prompt_token_ids",
    "agentlightning.operation.output.choices.0.token_ids",
    "agentlightning.operation.output.choices.0.logprobs",
    "agentlightning.operation.output.response_token_ids",
    "agentlightning.operation.output.choices.1.logprobs.content.0",
    "agentlightning.reward.0.value",
    "agentlightning.reward.1.value",
    "agentlightning.reward.0.name",
    "agentlightning.reward",
    "agentlightning.link.0.key_match",
    "agentlightning.link.0.value_match",
    "agentlightning.link",
    "agentlightning.operation.name",
    "agentops.task.output",
    "openinference.span.kind",
    "output.value",
    "gen_ai.response.body",
    "gen_ai.response.id",
    "gen_ai.response.finish_reasons",
    "gen_ai.completion.0.finish_reason",
    "gen_ai.output.messages",
    "gen_ai.operation.name",
    "ai.operationId",
    "litellm.call_id",
    "mlflow.spanOutputs",
    "mlflow.spanType",
    "atif.trajectory",
    "llm.hosted_vllm.choices",
    "llm.hosted_vllm.response_token_ids",
    "llm.hosted_vllm.prompt_token_ids",
    "agent.name",
    "reward",
]
SPAN_NAMES = ["raw_gen_ai_request", "agentlightning.reward", "agentlightning.annotation", "openai.chat", "x"]


@given(
    st.lists(
        st.tuples(st.sampled_from(SPAN_NAMES), st.dictionaries(st.sampled_from(KNOWN_NAMES), ODD_VALUES, max_size=6)),
        max_size=5,
    )
)
@settings(deadline=None, max_examples=examples(400))
def test_no_attribute_breaks_an_attempt(spans: list[tuple[str, dict[str, Any]]]) -> None:
    odd = [framework_span(n, attributes, name=name) for n, (name, attributes) in enumerate(spans, start=10)]
    trajectory = assemble(proxy_span(1, [1], [2]), *odd)
    assert span_id(1) in {triplet.span_id for triplet in trajectory.triplets}


def test_nothing_begins_between_an_opening_and_its_repeat() -> None:
    """Else the attempt would come out again, from its repeat on."""
    assembler = Assembler()
    other, second = opened("r2"), opened("r3")
    records: list[AnyRecord] = [opened(), other, opened(), proxy_span(1), second, closed()]
    (trajectory,) = assembler.on_records(zip(records, range(10, 16), strict=True))
    assert (trajectory.source.first_offset, trajectory.span_count) == (10, 1)
    assert assembler.low_water(16) == 10, "r2 is open from 11 on, and the repeat is at 12"
    assembler.on_record(closed("r2"), 16)
    assert assembler.low_water(17) == 14
    assembler.on_record(closed("r3"), 17)
    assert assembler.low_water(18) == 18


def test_what_is_held_back_for_other_reasons_lies_in_front_of_both_too() -> None:
    """A late span, for instance, for which the log is still read while all else is done."""
    assembler = Assembler()
    records: list[AnyRecord] = [opened(), proxy_span(2, attempt=7), opened("r2"), opened(), opened("r2"), proxy_span(1)]
    assembler.on_records(zip([*records, closed(), closed("r2")], range(10, 18), strict=True))
    assert assembler.low_water(18, 11) == 18
    assert [assembler.not_between(offset) for offset in (11, 12, 13, 14, 15)] == [10, 10, 10, 10, 15]
    assert assembler.low_water(18) == 18
    assert assembler.not_between(11) == 11, "it was done: nothing can be committed any more that lies so far back"


def test_what_a_crash_left_open_gives_way_to_what_began_in_its_place() -> None:
    never = opened().model_copy(update={"attempt_id": "never-began"})
    assembler = Assembler()
    records: list[AnyRecord] = [never, opened(), proxy_span(1), closed()]
    found = assembler.on_records(zip(records, range(10, 14), strict=True))
    assert [(trajectory.attempt_id, trajectory.call_count) for trajectory in found] == [("r1-a1", 1)]
    assert (assembler.open_count, assembler.low_water(14)) == (0, 14)


def test_what_a_crash_left_open_goes_with_the_rollout() -> None:
    """A silent attempt came back, though the next one had been opened before the crash."""
    assembler = Assembler()
    records: list[AnyRecord] = [opened(), opened(attempt=2), proxy_span(1), closed()]
    found = assembler.on_records(zip(records, range(4), strict=True))
    assert [(trajectory.attempt_id, trajectory.final) for trajectory in found] == [("r1-a1", True)]
    assert (assembler.open_count, assembler.low_water(4)) == (0, 4)


def test_a_rollout_that_is_retried_keeps_its_next_attempt() -> None:
    assembler = Assembler()
    again: list[AnyRecord] = [opened(), closed(final=False)]
    records: list[AnyRecord] = [*again, opened(attempt=2), *again, closed(attempt=2)]
    found = assembler.on_records(zip(records, range(6), strict=True))
    assert [trajectory.attempt_id for trajectory in found] == ["r1-a1", "r1-a2"]
