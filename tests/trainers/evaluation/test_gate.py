"""The gate's decisions on candidates of known quality, and its arithmetic against a count of every case."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.records import GateCheckKind, GateOutcome
from lightstream.trainers.evaluation.gate import Bar, Decision, Guard, decide
from lightstream.trainers.evaluation.statistics import Sample, chance_of_at_least

TASKS, SAMPLES, DEVIATION = 40, 2, 0.2
NO_GUARDS = Bar(margin=0.05, guards=())
UNNAMED = (None, None)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=10))
def test_the_chance_is_the_share_of_all_signs(values: list[int]) -> None:
    sums = [
        sum(sign * value for sign, value in zip(signs, values, strict=True))
        for signs in itertools.product((1, -1), repeat=len(values))
    ]
    exact = fmean(total >= sum(values) for total in sums)
    assert chance_of_at_least(values, resamples=9999) == pytest.approx(exact, abs=0.025)  # five standard deviations


def answers(model: str, rng: random.Random, mean: float, **others: Callable[[], float]) -> list[Sample]:
    """Samples of a model whose rewards have this mean and the deviation ``DEVIATION`` around their task's."""
    return [
        Sample(model, task, rng.gauss(mean + task % 5 / 10, DEVIATION), **{name: f() for name, f in others.items()})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # figures by name
        for task in range(TASKS)
        for _ in range(SAMPLES)
    ]


def outcome(stable: Sequence[Sample], candidate: Sequence[Sample], bar: Bar = NO_GUARDS) -> GateOutcome:
    return decide({"fixed": (stable, candidate)}, bar, versions=UNNAMED).outcome


@pytest.mark.parametrize(("shift", "least", "most"), [(-DEVIATION, 0, 1), (0.0, 0, 4), (DEVIATION, 90, 100)])
def test_candidates_of_known_quality(shift: float, least: int, most: int) -> None:
    passed = 0
    for seed in range(100):
        rng = random.Random(seed)
        passed += outcome(answers("a", rng, 0.5), answers("b", rng, 0.5 + shift)) is GateOutcome.PASSED
    assert least <= passed <= most


def test_one_that_is_worse_on_one_set_fails_however_good_it_is_on_the_other() -> None:
    rng = random.Random(1)
    good = (answers("a", rng, 0.2), answers("b", rng, 0.9))
    bad = (answers("a", rng, 0.9), answers("b", rng, 0.2))
    for sets in ({"fixed": good, "traffic": bad}, {"traffic": bad, "fixed": good}):
        for gain_on in ("fixed", "traffic"):
            found = decide(sets, Bar(gain_on=gain_on, guards=()), versions=UNNAMED)
            assert found.outcome is GateOutcome.FAILED
            assert {(c.task_set, c.kind) for c in found.checks if c.passed} >= {("fixed", GateCheckKind.NOT_WORSE)}


@pytest.mark.parametrize("figure", ["cost", "response_tokens", "tool_errors", "refusals", "seconds"])
def test_a_better_one_that_costs_more_fails_on_that_guard_alone(figure: str) -> None:
    rng = random.Random(2)
    usual: dict[str, Callable[[], float]] = dict.fromkeys(
        ("cost", "response_tokens", "seconds"), lambda: rng.uniform(20, 30)
    )
    usual |= dict.fromkeys(("tool_errors", "refusals"), lambda: float(rng.random() < 0.02))
    stable, same = answers("a", rng, 0.2, **usual), answers("b", rng, 0.9, **usual)
    assert outcome(stable, same, Bar()) is GateOutcome.PASSED
    dear = answers("b", rng, 0.9, **(usual | {figure: lambda: rng.uniform(60, 90)}))
    found = decide({"fixed": (stable, dear)}, Bar(), versions=UNNAMED)
    assert found.outcome is GateOutcome.FAILED
    named = {"response_tokens": "length", "seconds": "latency"}.get(figure, figure)
    assert [check.figure for check in found.checks if not check.passed] == [named]


def test_a_figure_that_is_not_known_is_noted_and_not_checked() -> None:
    rng = random.Random(3)
    stable, candidate = answers("a", rng, 0.2), answers("b", rng, 0.9)
    found = decide({"fixed": (stable, candidate)}, Bar(), versions=UNNAMED)
    assert found.outcome is GateOutcome.PASSED
    assert found.notes == ["fixed: cost is not known of every rollout, and is not checked"]


def undecided(stable: Sequence[Sample], candidate: Sequence[Sample], versions: tuple[int | None, int | None]) -> str:
    found: Decision = decide({"fixed": (stable, candidate)}, NO_GUARDS, versions=versions)
    assert (found.outcome, found.checks) == (GateOutcome.UNDECIDED, [])
    (note,) = found.notes
    return note


def test_a_stable_model_that_fails_decides_nothing() -> None:
    rng = random.Random(4)
    good = answers("b", rng, 0.9)
    lost = [Sample("a", task, 0.0, failed=True) for task in range(TASKS)]
    assert "100% of the stable model's rollouts failed" in undecided(lost, good, UNNAMED)


def test_another_version_that_answered_decides_nothing() -> None:
    old = [Sample("a@3", task, 0.1, versions=(3,)) for task in range(TASKS)]
    new = [Sample("a@4", task, 0.9, versions=(4,)) for task in range(TASKS)]
    assert decide({"fixed": (old, new)}, NO_GUARDS, versions=(3, 4)).outcome is GateOutcome.PASSED
    mixed = [*new[1:], Sample("a@4", 0, 0.9, versions=(2, 4))]
    assert undecided(old, mixed, (3, 4)) == "fixed: a@4 was asked for, and version 2 answered"
    assert "version 3 answered" in undecided(old, new, (2, 4))


def test_other_tasks_of_each_decide_nothing() -> None:
    some = [Sample("a", task, 0.1) for task in range(TASKS)]
    assert "did not answer the same tasks" in undecided(some, some[1:], UNNAMED)
    assert "did not answer the same tasks" in undecided([], [], UNNAMED)


def test_a_handful_of_tasks_never_passes() -> None:
    old, new = [Sample("a", task, 0.0) for task in range(6)], [Sample("b", task, 1.0) for task in range(6)]
    assert outcome(old, new) is GateOutcome.FAILED
    assert outcome(old * 20, new * 20) is GateOutcome.FAILED, "more samples are not more tasks"


def test_what_cannot_be_a_bar_is_refused() -> None:
    with pytest.raises(SettingsError, match="no guard figure 'price'"):
        Guard("price")
    with pytest.raises(SettingsError, match="margin of the gate is 0"):
        Bar(margin=0)
    with pytest.raises(SettingsError, match="error rate"):
        Bar(error_rate=0.0)
    some = [Sample("a", 0, 1.0)]
    with pytest.raises(SettingsError, match="no set 'traffic'"):
        decide({"fixed": (some, some)}, Bar(gain_on="traffic"), versions=UNNAMED)
