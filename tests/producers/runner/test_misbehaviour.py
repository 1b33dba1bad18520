"""Agents that raise, exit, hang or swallow what should end them."""

from __future__ import annotations

import asyncio
import math
import sys
import threading
from typing import Any

import pytest
from opentelemetry import trace

from lightstream.producers import LitAgent, OtelTracer, rollout
from lightstream.runtime.settings import Settings
from lightstream.schemas.types import (
    NamedResources,
    Rollout,
    RolloutConfig,
)
from tests.producers.runner.running import SpansInLog, leaf, rewards, run
from tests.producers.support import ListStore


class Misbehaves(LitAgent[str]):
    """Fails as its task says, synchronously."""

    def rollout(self, task: str, resources: NamedResources, rollout: Rollout) -> Any:
        with trace.get_tracer("agent").start_as_current_span("before"):
            pass
        if task == "raises":
            raise KeyError("no such tool")
        if task == "exits":
            sys.exit(3)
        if task == "interrupts":
            raise KeyboardInterrupt
        if task == "cancelled":
            raise asyncio.CancelledError("inner task cancelled")
        return {"text": "not a number", "list": [1.0], "nan": math.nan}.get(task, 1.0)


class MisbehavesAsync(Misbehaves):
    """As above, asynchronously."""

    async def rollout_async(self, task: str, resources: NamedResources, rollout: Rollout) -> Any:
        await asyncio.sleep(0)
        return self.rollout(task, resources, rollout)


@pytest.mark.parametrize("agent", [Misbehaves(), MisbehavesAsync()], ids=["sync", "async"])
def test_misbehaving_agents_fail_alone_with_their_error_kept(
    settings: Settings, tracer: OtelTracer, spans_in_log: SpansInLog, agent: LitAgent[Any]
) -> None:
    tasks = ["raises", "exits", "interrupts", "cancelled", "text", "list", "fine", "nan"]
    store = ListStore()
    assert run(store, agent, settings, tracer, tasks) == len(tasks)
    ended = {tasks[int(rollout_id[1:])]: end for rollout_id, end in store.ended.items()}
    errors = {task: error_type for task, (succeeded, error_type, _) in ended.items() if not succeeded}
    assert errors == {
        "raises": "KeyError",
        "exits": "SystemExit",
        "interrupts": "KeyboardInterrupt",
        "cancelled": "CancelledError",
        "text": "TypeError",
        "list": "TypeError",
    }
    assert "no such tool" in str(ended["raises"][2])
    assert "test_misbehaviour.py" in str(ended["raises"][2]), "the error says where it was raised"
    assert "not a number" in str(ended["text"][2])
    spans = spans_in_log()
    assert sorted(s.rollout_id or "" for s in spans if s.name == "before") == [f"r{i}" for i in range(len(tasks))]
    found = rewards(spans)
    assert found.pop("r6") == 1.0
    assert math.isnan(found.pop("r7")), "a NaN reward travels; the assembler reports it"
    assert not found


@pytest.mark.parametrize("is_async", [False, True])
def test_agent_beyond_its_deadline_is_given_up(
    settings: Settings, tracer: OtelTracer, spans_in_log: SpansInLog, is_async: bool
) -> None:
    """The attempt beside it is not harmed, and what the hanging one did before is kept."""
    released = threading.Event()
    cleaned_up: list[str] = []

    @rollout
    def hangs(task: str) -> float:
        leaf(trace.get_tracer("agent"), 0)
        if task == "hang":
            released.wait(300)
        return 1.0

    @rollout
    async def hangs_async(task: str) -> float:
        leaf(trace.get_tracer("agent"), 0)
        try:
            if task == "hang":
                await asyncio.Event().wait()
        finally:
            cleaned_up.append(task)
        return 1.0

    store = ListStore()
    agent = hangs_async if is_async else hangs
    run(store, agent, settings, tracer, ["hang", "work"], configs={"hang": RolloutConfig(timeout_seconds=1.0)})
    released.set()
    assert store.ended["r0"] == (False, "Timeout", "the agent did not return within 1 s")
    assert store.ended["r1"] == (True, None, None)
    assert {s.rollout_id for s in spans_in_log() if s.name == "leaf-0"} == {"r0", "r1"}
    assert rewards(spans_in_log()) == {"r1": 1.0}
    assert sorted(cleaned_up) == (["hang", "work"] if is_async else [])


def test_agent_that_swallows_its_cancellation_does_not_hold_the_runner(
    settings: Settings, tracer: OtelTracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lightstream.producers.runner.attempt.CANCEL_GRACE_S", 0.1)

    @rollout
    async def stubborn(task: str) -> None:
        finished = asyncio.Event()
        while task == "stay":
            try:
                await asyncio.wait_for(finished.wait(), 2)
                return
            except asyncio.CancelledError:
                continue
            except TimeoutError:
                return

    store = ListStore()
    run(store, stubborn, settings, tracer, ["stay", "go"], configs={"stay": RolloutConfig(timeout_seconds=0.2)})
    assert store.ended["r0"][1] == "Timeout"
    assert store.ended["r1"][0]
