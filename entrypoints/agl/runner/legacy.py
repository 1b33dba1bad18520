"""The Runner of the first protocol (0.1): polls ``/task``, runs the agent, reports to ``/rollout``."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

from lightstream.producers import LitAgent, OtelTracer
from lightstream.producers.runner import Outcome
from lightstream.schemas.attribute_names import ATTEMPT_ID
from lightstream.schemas.errors import LightstreamError, NotFoundError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import Attempt, AttemptedRollout, NamedResources, Span, Triplet
from lightstream.stream_processors.adapters import TracerTraceToTriplet

from ..client import AgentLightningClient
from ..first_protocol.messages import ERROR_MESSAGE, ERROR_TYPE, RolloutLegacy, Task
from ..litagent import is_v0_1_rollout_api
from .base import Runner

__all__ = ["LegacyAgentRunner", "client_of", "run_legacy"]

logger = logging.getLogger(__name__)


def _report_of(
    task: Task, result: Any, traced: Sequence[Span], triplets_in: Callable[[list[Any]], list[Triplet]]
) -> RolloutLegacy:
    """The report of a task.

    Args:
        result: the final reward; triplets; spans (the SDK's, ours, or JSON); a report; or ``None``.
        traced: the spans of the tracer, which count where the agent returned none.
        triplets_in: finds triplets in spans.

    Raises:
        TypeError: ``result`` is something else.
    """
    report = RolloutLegacy(rollout_id=task.rollout_id, task=task)
    spans: list[Any] = list(traced)
    if isinstance(result, RolloutLegacy):
        report = result.model_copy(update={"rollout_id": task.rollout_id, "task": result.task or task})
    elif isinstance(result, int | float):
        report.final_reward = float(result)
    elif isinstance(result, list) and result and all(isinstance(item, Triplet) for item in result):
        report.triplets = result
    elif isinstance(result, list) and result and all(isinstance(item, dict) for item in result):
        report.trace, spans = result, []
    elif isinstance(result, list) and all(isinstance(item, ReadableSpan | Span) for item in result):
        spans = result or spans
    elif result is not None:
        raise TypeError(f"an agent returns its reward, None, triplets, spans or a report; got {result!r:.200}")
    if spans and report.trace is None:
        report.trace = [_json_of(span) for span in spans]
    if spans and report.triplets is None:
        report.triplets = triplets_in(spans)
    if report.final_reward is None and report.triplets:
        report.final_reward = report.triplets[-1].reward
    return report


def _error_of(task: Task, error: Exception) -> RolloutLegacy:
    """The report of a task that failed."""
    outcome = Outcome.of_error(error)
    return RolloutLegacy(
        rollout_id=task.rollout_id,
        task=task,
        logs=["".join(traceback.format_exception_only(error)).strip()],
        metadata={ERROR_TYPE: outcome.error_type, ERROR_MESSAGE: outcome.error_message},
    )


def _json_of(span: ReadableSpan | Span) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(span.to_json()) if isinstance(span, ReadableSpan) else span.model_dump()
    return document


class TaskRollout(AttemptedRollout):
    """A rollout as its agent sees it, with the task that it came as."""

    task: Task


class _NoStore(LightningStore):
    """Takes spans and forgets them: they travel in the report."""

    async def add_otel_span(self, *_: Any, **__: Any) -> Span | None:
        return None


class LegacyAgentRunner(Runner[Any]):
    """Runs an agent for a server of the first protocol (:class:`AgentLightningServer`, ``lightstream store``, or an old
    one). One task at a time.

    The report holds the spans that the tracer saw, the triplets in them, and the final reward: what the agent returned,
    else that of the last triplet. An agent that raises is reported as failed (the protocol knows no such thing: in the
    metadata, as ``lightstream.error_type`` and ``lightstream.error_message``; our servers read them).

    Args:
        agent: what to run; its synchronous methods by :meth:`run`, its asynchronous ones by :meth:`run_async`.
        client: where tasks come from. :class:`DevTaskLoader` has its own.
        tracer: sees the agent's spans.
        triplet_exporter: finds triplets in them.
        worker_id: for the log.
        max_tasks: how many :meth:`iter` runs; ``None`` for no end.
    """

    def __init__(
        self,
        agent: LitAgent[Any],
        client: AgentLightningClient,
        tracer: OtelTracer,
        triplet_exporter: TracerTraceToTriplet,
        worker_id: int | None = None,
        max_tasks: int | None = None,
    ) -> None:
        self.agent = agent
        self.client = client
        self.tracer = tracer
        self.triplet_exporter = triplet_exporter
        self.worker_id = worker_id
        self.max_tasks = max_tasks
        self._no_store = _NoStore()

    def init(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: the agent is known."""

    def init_worker(self, worker_id: int, *args: Any, **kwargs: Any) -> None:
        """Set which worker this is."""
        self.worker_id = worker_id

    def teardown_worker(self, worker_id: int, *args: Any, **kwargs: Any) -> None:
        """Nothing."""

    def teardown(self, *args: Any, **kwargs: Any) -> None:
        """Nothing."""

    def run(self, *args: Any, **kwargs: Any) -> bool:
        """Wait for one task, run and report it; returns whether there was one."""
        self.agent.set_runner(self)
        task = self.client.poll_next_task()
        if task is None:
            return False
        self._tell("on_rollout_start", task, self, self.tracer)
        try:
            resources = _resources(task, self.client.get_resources_by_id, self.client.get_latest_resources)
            with self._traced(task):
                method = self.agent.training_rollout if task.mode == "train" else self.agent.validation_rollout
                result = _called(method, task, resources)
                report = self._report(task, result)
        except Exception as error:  # reported as the rollout's failure; the Runner must outlive it
            logger.exception("rollout %s failed in worker %s.", task.rollout_id, self.worker_id)
            report = _error_of(task, error)
        self._tell("on_rollout_end", task, report, self, self.tracer)
        try:
            _check_taken(task, self.client.post_rollout(report))
        except LightstreamError:
            logger.exception("the report of rollout %s was refused.", task.rollout_id)
        return True

    async def run_async(self) -> bool:
        """As :meth:`run`, by the agent's asynchronous methods."""
        self.agent.set_runner(self)
        task = await self.client.poll_next_task_async()
        if task is None:
            return False
        self._tell("on_rollout_start", task, self, self.tracer)
        try:
            update = (
                await self.client.get_resources_by_id_async(task.resources_id)
                if task.resources_id
                else await self.client.get_latest_resources_async()
            )
            resources = _resources(task, lambda _: update, lambda: update)
            async with self._traced(task):
                agent = self.agent
                method = agent.training_rollout_async if task.mode == "train" else agent.validation_rollout_async
                result = await _called(method, task, resources)
                report = self._report(task, result)
        except Exception as error:  # reported as the rollout's failure; the Runner must outlive it
            logger.exception("rollout %s failed in worker %s.", task.rollout_id, self.worker_id)
            report = _error_of(task, error)
        self._tell("on_rollout_end", task, report, self, self.tracer)
        try:
            _check_taken(task, await self.client.post_rollout_async(report))
        except LightstreamError:
            logger.exception("the report of rollout %s was refused.", task.rollout_id)
        return True

    def iter(self, *, event: Any = None) -> int:  # type: ignore[override]  # the legacy interface's: it blocks
        """:meth:`run` ``max_tasks`` times, or until ``event`` is set; returns how many tasks were run."""
        done = 0
        while (self.max_tasks is None or done < self.max_tasks) and not (event is not None and event.is_set()):
            done += self.run()
        return done

    async def iter_async(self, *, event: Any = None) -> int:
        """:meth:`run_async` ``max_tasks`` times, or until ``event`` is set; returns how many tasks were run."""
        done = 0
        while (self.max_tasks is None or done < self.max_tasks) and not (event is not None and event.is_set()):
            done += await self.run_async()
            await asyncio.sleep(0)
        return done

    def _traced(self, task: Task) -> Any:
        return self.tracer.trace_context(
            store=self._no_store,
            rollout_id=task.rollout_id,
            attempt_id=_attempt_id(task),
        )

    def _report(self, task: Task, result: Any) -> RolloutLegacy:
        """Within the trace context, so that its spans are those of this task alone."""
        return _report_of(task, result, self.tracer.get_last_trace(), self.triplet_exporter)

    def _tell(self, name: str, *arguments: Any) -> None:
        """Call the agent's own hook. What it raises is logged."""
        try:
            getattr(self.agent, name)(*arguments)
        except Exception:
            logger.exception("%s of %s failed.", name, type(self.agent).__name__)


def _attempt_id(task: Task) -> str:
    found = task.metadata.get(ATTEMPT_ID)
    return found if isinstance(found, str) else f"at-{task.rollout_id}"


def _resources(task: Task, by_id: Any, latest: Any) -> NamedResources:
    """Those the task names, or the latest; none where none were ever published.

    Raises:
        NotFoundError: those it names do not exist.
    """
    update = by_id(task.resources_id) if task.resources_id else latest()
    if update is None and task.resources_id:
        raise NotFoundError(f"Resources {task.resources_id} not found")
    return {} if update is None else update.resources


def _called(method: Any, task: Task, resources: NamedResources) -> Any:
    """Call the agent's method, which may be of the first interface: task, rollout id, resources."""
    if is_v0_1_rollout_api(method):
        return method(task.input, rollout_id=task.rollout_id, resources=resources)
    now = time.time()
    attempt_id = _attempt_id(task)
    rollout = TaskRollout(
        rollout_id=task.rollout_id,
        input=task.input,
        mode=task.mode if task.mode in ("train", "val", "test") else None,
        resources_id=task.resources_id,
        start_time=task.create_time or now,
        status="running",
        metadata=task.metadata,
        attempt=Attempt(
            rollout_id=task.rollout_id,
            attempt_id=attempt_id,
            sequence_id=task.num_claims or 1,
            start_time=task.last_claim_time or now,
            status="running",
        ),
        task=task,
    )
    return method(task.input, resources, rollout)


def _check_taken(task: Task, answer: dict[str, Any] | None) -> None:
    if answer is None:
        logger.error("the report of rollout %s was not taken: the server is away.", task.rollout_id)


def client_of(server: Any) -> AgentLightningClient | None:
    """The client of a URL, or the client itself; ``None`` where it is neither (tasks)."""
    if isinstance(server, str):
        if not server.startswith(("http://", "https://")):
            raise ValueError(f"{server!r} is not the URL of a server: http://…")
        return AgentLightningClient(server)
    return server if isinstance(server, AgentLightningClient) else None


def run_legacy(
    agent: LitAgent[Any],
    client: AgentLightningClient,
    tracer: OtelTracer,
    adapter: TracerTraceToTriplet,
    *,
    n_runners: int,
    tasks_max: int | None,
) -> None:
    """Run the tasks of ``client`` by ``n_runners`` Runners, each in a thread and up to ``tasks_max`` of them.

    An error in one stops the others after their current task. Ctrl-C abandons them, with the process.
    """
    stop = threading.Event()
    failures: list[Exception] = []

    def work(worker_id: int) -> None:
        runner = LegacyAgentRunner(agent, client, tracer, adapter, worker_id, tasks_max)
        if agent.is_async():
            asyncio.run(runner.iter_async(event=stop))
        else:
            runner.iter(event=stop)

    def work_beside(worker_id: int) -> None:
        try:
            work(worker_id)
        except Exception as error:  # raised in the caller's thread at the end
            logger.exception("worker %d ended.", worker_id)
            failures.append(error)
            stop.set()

    beside = [threading.Thread(target=work_beside, args=(number,), daemon=True) for number in range(1, n_runners)]
    for thread in beside:
        thread.start()
    try:
        work(0)
    except BaseException:
        stop.set()
        raise
    for thread in beside:
        thread.join()
    if failures:
        raise failures[0]
