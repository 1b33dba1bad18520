"""Which tasks a step takes: repeatable, and every task once per pass."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightstream.schemas.errors import TrainingError
from lightstream.schemas.types import Assembly, RolloutConfig
from lightstream.trainers.run.tasks import TaskRequest, further_index, sample_indices, step_group_id, step_requests


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(1, 9), st.integers(0, 3))
def test_every_pass_takes_every_task_once(size: int, count: int, seed: int) -> None:
    steps = (3 * size) // count + 1
    taken = [index for step in range(1, steps + 1) for index in sample_indices(step, count, size, seed)]
    for epoch in range(3):
        assert sorted(taken[epoch * size : (epoch + 1) * size]) == list(range(size))


def test_a_step_is_the_same_whenever_it_is_asked_for() -> None:
    assert sample_indices(7, 4, 10, 1) == sample_indices(7, 4, 10, 1)
    assert sample_indices(1, 10, 10, 1) != sample_indices(1, 10, 10, 2)


def test_further_tasks_have_passes_of_their_own() -> None:
    taken = [further_index(number, range(10), "run", 1) for number in range(30)]
    assert [sorted(taken[epoch * 10 : epoch * 10 + 10]) for epoch in range(3)] == [list(range(10))] * 3
    assert taken[:10] != sample_indices(1, 10, 10, 1)


def test_an_empty_data_set_is_refused() -> None:
    with pytest.raises(TrainingError, match="no tasks"):
        sample_indices(1, 1, 0, 0)


def test_ids_follow_from_run_step_and_place() -> None:
    group = step_group_id("run", 3, 1)
    requests = step_requests(
        group,
        TaskRequest("say 7", {"source": "tests"}),
        count=2,
        run_id="run",
        mode="train",
        resources_id="run-v2",
        config=RolloutConfig(),
        assembly=Assembly(credit="last_call_only"),
    )
    assert [r.assembly for r in requests] == [Assembly(credit="last_call_only")] * 2
    assert [(r.input, r.metadata) for r in requests] == [("say 7", {"source": "tests"})] * 2
    assert [r.rollout_id for r in requests] == ["run-s3-g1-0", "run-s3-g1-1"]
    assert {(r.group_id, r.group_size, r.resources_id) for r in requests} == {("run-s3-g1", 2, "run-v2")}
