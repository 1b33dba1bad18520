"""Statistics of an evaluation, against definitions that count every case."""

from __future__ import annotations

import itertools
import random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightstream.trainers.evaluation.statistics import (
    Comparison,
    Estimate,
    Sample,
    comparison,
    estimate,
    pass_at_k,
    summary,
)


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_choices_with_a_pass(case: tuple[int, int, int]) -> None:
    samples, passed, k = case
    chosen = list(itertools.combinations(range(samples), k))
    expected = fmean(any(number < passed for number in some) for some in chosen)
    assert pass_at_k(samples, passed, k) == pytest.approx(expected, abs=1e-12)


def samples_of(model: str, rewards: list[list[float]]) -> list[Sample]:
    return [Sample(model, task, reward) for task, some in enumerate(rewards) for reward in some]


def test_a_summary_weighs_tasks_alike() -> None:
    rewards = [[1.0, 0.0, 0.0, 0.0], [1.0, 1.0]]
    one = summary(samples_of("m", rewards))
    assert one.reward.mean == pytest.approx((0.25 + 1.0) / 2)
    assert {k: passes.mean for k, passes in one.passes.items()} == pytest.approx({1: 0.625, 2: (0.5 + 1.0) / 2})
    assert (one.tasks, one.samples, one.failed) == (2, 6, 0)


def test_costs_are_summed_only_where_all_are_known() -> None:
    known, unknown = Sample("m", 0, 1.0, tokens=3, cost=0.5), Sample("m", 1, 1.0, tokens=4)
    assert summary([known, known]).cost == 1.0
    assert summary([known, unknown]).cost is None
    assert summary([known, unknown]).tokens == 7


def test_an_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    rng = random.Random(7)
    covered = 0
    for trial in range(200):
        found = estimate([float(rng.random() < 0.3) for _ in range(60)], seed=trial)
        covered += found.low <= 0.3 <= found.high
    assert 0.88 <= covered / 200 <= 0.99


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=7))
def test_the_chance_of_a_difference_is_that_of_all_signs(differences: list[int]) -> None:
    ours = [[float(value)] for value in differences]
    found = comparison(samples_of("a", ours), samples_of("b", [[0.0] for _ in differences]))
    assert found is not None
    signs = itertools.product((1, -1), repeat=len(differences))
    sums = [abs(sum(s * value for s, value in zip(some, differences, strict=True))) for some in signs]
    exact = fmean(total >= abs(sum(differences)) for total in sums)
    assert found.probability == pytest.approx(exact, abs=0.06)  # five standard deviations of 2,000 draws
    assert found.difference.mean == pytest.approx(fmean(differences))


def test_only_tasks_that_both_answered_are_compared() -> None:
    ours, theirs = [Sample("a", 0, 1.0), Sample("a", 1, 1.0)], [Sample("b", 1, 0.0), Sample("b", 2, 9.0)]
    found = comparison(ours, theirs)
    assert found is not None
    assert (found.tasks, found.difference.mean) == (1, 1.0)
    assert comparison(ours[:1], theirs) is None


@pytest.mark.parametrize(
    ("low", "margin", "is_not_worse"), [(-0.05, 0.05, True), (-0.051, 0.05, False), (0.0, 0.0, True), (0.2, 0.0, True)]
)
def test_the_whole_interval_decides_whether_a_model_is_not_worse(low: float, margin: float, is_not_worse: bool) -> None:
    found = Comparison("new", "old", tasks=9, difference=Estimate(0.3, low, 0.6), probability=1.0)
    assert found.is_not_worse(margin) is is_not_worse
