"""Agents under a policy kernel: violations are spans of their attempt, and may fail it."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

from lightstream.producers import GovernedAgent, LitAgent, OtelTracer, PolicyRunner, emit_reward, rollout
from lightstream.producers.policy import PolicyViolation, PolicyViolationError, ViolationHandler
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.types import EnqueueRolloutRequest
from lightstream.store_views.stores import InMemoryLightningStore
from lightstream.stream_processors.core.rewards import automatic_rules, read_automatic
from tests.producers.runner.running import SpansInLog

RULES = ["violation:-0.25", "violation.critical:-1"]


class SqlKernel:
    """Lets agents run statements, but for those that delete. Its parts are called by agents."""

    def __init__(self) -> None:
        self.handlers: list[ViolationHandler] = []

    def on_policy_violation(self, handler: ViolationHandler, /) -> None:
        self.handlers.append(handler)

    def execute(self, agent: Callable[[Any], Any], task: Any) -> Any:
        return agent(task)

    def run(self, statement: str) -> str:
        if statement.startswith(("DROP", "SELECT *")):
            drops = statement.startswith("DROP")
            for handler in self.handlers:
                handler("sql", f"{statement} is not allowed", "critical" if drops else "low", drops)
            if drops:
                raise PermissionError(statement)
        return "done"


class AsyncKernel(SqlKernel):
    """Its ``execute`` is asynchronous, as that of Agent-OS."""

    async def execute(self, agent: Callable[[Any], Any], task: Any) -> Any:
        await asyncio.sleep(0)
        return await agent(task)


def agents(kernel: SqlKernel) -> list[LitAgent[Any]]:
    """Each goes on after it was blocked, as agents with tools do."""

    @rollout
    def in_thread(task: list[str]) -> float:
        for statement in task:
            with contextlib.suppress(PermissionError, PolicyViolationError):
                kernel.run(statement)
        return 1.0

    @rollout
    async def in_loop(task: list[str]) -> float:
        return float(in_thread(task))

    return [in_thread, in_loop]


def run(
    settings: Settings,
    agent: LitAgent[Any],
    kernel: Any,
    tasks: list[Any],
    tracer: OtelTracer,
    **options: Any,
) -> dict[str, tuple[str, str | None, str | None]]:
    """How each rollout ended: status, and why."""

    async def main() -> dict[str, tuple[str, str | None, str | None]]:
        store = InMemoryLightningStore()
        await store.enqueue_many_rollouts(
            [EnqueueRolloutRequest(input=task, rollout_id=f"r{number}") for number, task in enumerate(tasks)]
        )
        runner = PolicyRunner(store, agent, kernel, settings=settings, tracer=tracer, n_concurrent=4, **options)
        await runner.run(max_rollouts=len(tasks))
        ends: dict[str, tuple[str, str | None, str | None]] = {}
        for attempted in await store.query_rollouts():
            [attempt] = await store.query_attempts(attempted.rollout_id)
            ends[attempted.rollout_id] = (attempted.status, attempt.error_type, attempt.error_message)
        return ends

    return asyncio.run(main())


@pytest.mark.parametrize("kernel_class", [SqlKernel, AsyncKernel])
@pytest.mark.parametrize("which", [0, 1])
def test_violations_are_spans_of_their_own_attempt_as_the_assembler_reads_them(
    settings: Settings, tracer: OtelTracer, spans_in_log: SpansInLog, kernel_class: type[SqlKernel], which: int
) -> None:
    kernel = kernel_class()
    tasks = [["SELECT 1"], ["DROP a", "SELECT * FROM b"], ["SELECT * FROM c"]]
    ends = run(settings, agents(kernel)[which], kernel, tasks, tracer)
    assert set(ends.values()) == {("succeeded", None, None)}
    told: dict[str | None, list[tuple[Any, ...]]] = {}
    for span in spans_in_log():
        if span.attributes.get("agent_os.violation") is True:
            prices = read_automatic(automatic_rules(RULES), span, 0)
            attributes = (span.attributes[f"agent_os.{name}"] for name in ("policy", "severity", "blocked"))
            told.setdefault(span.rollout_id, []).append((span.name, *attributes, len(prices)))
    assert told == {
        "r1": [
            ("agentlightning.annotation", "sql", "critical", True, 2),
            ("agentlightning.annotation", "sql", "low", False, 1),
        ],
        "r2": [("agentlightning.annotation", "sql", "low", False, 1)],
    }


@pytest.mark.parametrize("kernel_class", [SqlKernel, AsyncKernel])
@pytest.mark.parametrize("which", [0, 1])
def test_what_was_blocked_fails_the_attempt_and_says_why(
    settings: Settings, tracer: OtelTracer, spans_in_log: SpansInLog, kernel_class: type[SqlKernel], which: int
) -> None:
    kernel = kernel_class()
    tasks = [["SELECT 1"], ["DROP a"], ["SELECT * FROM c"]]
    ends = run(settings, agents(kernel)[which], kernel, tasks, tracer, fail_on_violation=True, emit_violations=False)
    assert ends["r0"] == ends["r2"] == ("succeeded", None, None)
    status, error_type, message = ends["r1"]
    assert (status, error_type) == ("failed", "PolicyViolationError")
    assert message is not None
    assert message.startswith("policy 'sql' (critical) was violated and the agent blocked: DROP a is not allowed")
    assert not [span for span in spans_in_log() if "agent_os.violation" in span.attributes]


def test_a_kernel_that_tells_from_elsewhere(
    settings: Settings, tracer: OtelTracer, caplog: pytest.LogCaptureFixture
) -> None:
    """From a thread that was there before: one attempt runs, so it is that one's; with none, it is logged."""
    kernel, seen = SqlKernel(), list[list[PolicyViolation]]()
    asked, told = threading.Event(), threading.Event()

    def watch() -> None:
        asked.wait(300)
        kernel.handlers[0]("time", "too long", "medium", False)
        told.set()

    watcher = threading.Thread(target=watch)
    watcher.start()

    @rollout
    def slow(task: str) -> None:
        asked.set()
        assert told.wait(300)
        emit_reward(1.0)

    governed = GovernedAgent(slow, kernel, on_attempt=seen.append)
    with tracer.trace_context(rollout_id="r", attempt_id="a"):
        governed.rollout("x", {}, None)  # type: ignore[arg-type]  # the agent does not look at it
        assert [span.name for span in tracer.get_last_trace()] == ["agentlightning.annotation"] * 2
    watcher.join()
    [[violation]] = seen
    assert (violation.policy_name, violation.severity, violation.penalty) == ("time", "medium", -10.0)
    assert "outside of any attempt" not in caplog.text
    kernel.handlers[0]("time", "too late", "odd", True)
    assert "too late" in caplog.text


def test_what_is_no_kernel_is_refused_at_once() -> None:
    agent = agents(SqlKernel())[0]
    with pytest.raises(SettingsError, match=r"on_policy_violation.* and execute"):
        GovernedAgent(agent, object())  # type: ignore[arg-type]  # what is refused
    with pytest.raises(SettingsError, match="rollout makes one"):
        GovernedAgent(len, SqlKernel())  # type: ignore[arg-type]  # what is refused
    error = PolicyViolationError(PolicyViolation("p", "d", "high", True))
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  # written one line above
    assert (str(again), again.violation) == (str(error), error.violation)
