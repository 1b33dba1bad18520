"""What the machines of ``test_against_reference`` found once: each kept as the calls that showed it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lightstream.schemas.types import UNSET, RolloutConfig

from .contract.machine import RETRIES, ContractMachine
from .test_against_reference import InMemory, Stormy

Steps = list[Callable[[ContractMachine], None]]


def started(state: ContractMachine) -> None:
    state.start_rollout(again=False, place=0, worker="w0", config=RETRIES, values={})


def silent(state: ContractMachine) -> None:
    state.update_attempt(
        place=0, which=0, status="unresponsive", worker=UNSET, heard_ago_s=UNSET, metadata=UNSET, error=(None, None)
    )


FOUND: dict[str, Steps] = {
    # A rollout that runs was shown with the error "Unresponsive".
    "an attempt that came back by a span has no error": [started, silent, lambda s: s.add_spans([(0, 0, 0, 1)])],
    "an attempt that came back by a heartbeat has no error": [started, silent, lambda s: s.heartbeat("w0", [(0, 1)])],
    "an attempt that is said to run again has no error": [
        started,
        silent,
        lambda s: s.update_attempt(0, 0, "running", UNSET, UNSET, UNSET, (None, None)),
    ],
    "a rollout that is said to run again has no error": [
        started,
        silent,
        lambda s: s.update_rollout(0, "running", UNSET, UNSET, UNSET, UNSET),
    ],
    # A worker whose attempt had fallen silent was busy with it for ever.
    "a worker has no attempt in hand that has fallen silent": [started, silent, lambda s: s.ask([], 0)],
    # Its sign of life was answered with the attempt that the silence had taken; then the model still said so.
    "nor when it says that it lives": [started, silent, lambda s: s.update_worker("w0", UNSET)],
    # Shown idle, and with the attempt that the silence had taken.
    "nor when it asked for another and found none": [
        started,
        silent,
        lambda s: s.dequeue_many(1, "w0", "a"),
        lambda s: s.update_worker("w0", UNSET),
    ],
    "a worker has it in hand again once that is heard of": [
        started,
        silent,
        lambda s: s.add_spans([(0, 0, 0, 1)]),
        lambda s: s.ask([], 0),
    ],
    # The model counted silence from before a crash in which the limit became as short as the silence was.
    "a life cycle that starts again counts silence from then on": [
        lambda s: s.begin(0),
        lambda s: s.wait(1),
        lambda s: s.wait(9),
        lambda s: s.update_rollout(
            0, UNSET, RolloutConfig(max_attempts=1, unresponsive_seconds=10), UNSET, UNSET, UNSET
        ),
    ],
}

SEEDS = {"a life cycle that starts again counts silence from then on": 2}
"""Of the crashes that it takes."""


@pytest.mark.parametrize("machine", [InMemory, Stormy])
@pytest.mark.parametrize("found", FOUND)
def test_found_before(machine: type[ContractMachine], found: str) -> None:
    state = machine()
    if isinstance(state, Stormy):
        state.weather(SEEDS.get(found, 0))
    try:
        for step in FOUND[found]:
            step(state)
            state.what_was_touched_is_as_it_is_known()
            if isinstance(state, Stormy):
                state.attempts_open_and_close_once()
    finally:
        state.teardown()
