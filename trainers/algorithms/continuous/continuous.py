"""A policy that learns from traffic, window by window: one training step for each, committed with its offsets."""

from __future__ import annotations

import asyncio
import math
import signal
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.runtime.deletions import Deletions
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError, StoppedError
from lightstream.schemas.records import Trajectory
from lightstream.schemas.topics import RESOURCES, TRAINING_STEPS
from lightstream.store_views.client import ViewClient

from ...ledger.reading import read_topic
from ...rollouts.batch import Exclusion, rollout_score
from ...rollouts.groups import Group
from ...rollouts.traffic import TrafficSource, Window, WindowRule
from ...rollouts.trajectory_source import TrajectorySource
from ...run.history import History, replay
from ...run.identity import check_same_run
from ...run.lock import checked_name
from ...run.progress import Progress
from ..own.consumer import Consumption, Opening, Taken
from ..own.policy import LogprobGapError, Policy
from ..own.step import Step
from .learners import Learner, Lesson, learner_of
from .releasing import Gate, Releasing
from .rules import LANE, Rule, left_out_by

PAUSE_S = 1.0
"""Between two looks at a release that is paused."""

VERSIONS_BACK_MAX = 2**31
"""Any version of the run: the recorded probabilities correct for it."""


@dataclass(frozen=True, slots=True)
class PlannedWindow:
    """A window and its lesson.

    Attributes:
        window: its number, times and trajectories.
        left_out: (rollout id, attempt id) -> why it is not learned from; late ones too.
        learned: how many trajectories are learned from.
        is_closed: whether the watermark has closed it; an open one may still change.
    """

    window: Window
    left_out: Mapping[tuple[str, str], str]
    learned: int
    is_closed: bool = True

    @property
    def reward(self) -> float | None:
        """Mean reward of its trajectories; ``None`` where none has one."""
        rewards = [r for t in self.window.members if (r := rollout_score(t)) is not None]
        return math.fsum(rewards) / len(rewards) if rewards else None


@dataclass(slots=True)
class _Taken:
    """A window that is taken, and what rules say of it."""

    window: Window
    ruled: dict[str, str] = field(default_factory=dict[str, str])


class Continuous:
    """Learns from the traffic of an agent: rollouts of training mode that nobody enqueued in a group.

    Each window of traffic is one training step of ``run_id``. A version is published with it, unless the last one was
    published less than ``min_interval_s`` (of event time) before. A process that is killed at any point and started
    again makes the same versions.

    Args:
        model: folder (or name) of the initial model, with its tokenizer.
        run_id: the run that is trained, whose versions agents call as ``<run_id>@<version>``.
        agent: only trajectories with a call of this agent; ``None``: all traffic.
        window: seconds of event time; or
        count: trajectories of a window.
        lateness: seconds of event time that rewards and trajectories are waited for after a window's end.
        clock_ahead: seconds that an event time may be ahead of its record's time stamp in Kafka. What is further ahead
            closes no window. A rollout that ended further ahead is not learned from.
        traffic: the run that the rollouts name; by default they name none.
        epochs_per_window: updates that each window is used for.
        learner: ``reinforce``, ``sft``, or an object such as :class:`Reinforce`, :class:`RejectionSampling`.
        rules: what may be learned from, in SQL; a rollout is left out by the first rule that does.
        min_interval_s: least event time between the ends of two windows whose versions are published.
        tokens_max: ends once so many tokens were trained on; ``None``: no budget.
        release: versions are offered to this release as candidates, and nothing is learned while it is paused.
        gate: judges each version before it is offered; ``None``: nobody does, and the release's history says so.
        candidate_share: share of the release's keys that a candidate is offered.
        trainer_id: names the learner across restarts; by default the run's id.
        settings: ``None`` reads the environment.
        progress: print a line for each window.
        options: of :class:`Policy`, such as ``learning_rate``, ``lora_rank``, ``seed``.

    Raises:
        SettingsError: an option is none of these, or has no such value.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        run_id: str,
        agent: str | None = None,
        window: float | None = None,
        count: int | None = None,
        lateness: float = 0.0,
        clock_ahead: float = 300.0,
        traffic: str = "",
        learner: str | Learner = "reinforce",
        epochs_per_window: int = 1,
        rules: Sequence[Rule] = (),
        min_interval_s: float = 0.0,
        tokens_max: int | None = None,
        release: str | None = None,
        gate: Gate | None = None,
        candidate_share: float = 0.1,
        trainer_id: str | None = None,
        settings: Settings | None = None,
        progress: bool = True,
        **options: Any,
    ) -> None:
        self._run_id = checked_name("run_id", run_id)
        if traffic == run_id:
            raise SettingsError(
                f"run {run_id!r} would learn from rollouts that it enqueued itself.",
                next_step="Use VERL or trajectories() for these.",
            )
        self._agent = agent
        self._rule = WindowRule(length_s=window, count=count, lateness_s=lateness, ahead_s=clock_ahead)
        self._traffic = traffic
        self._learner = learner_of(learner)
        self._rules = tuple(rules)
        if epochs_per_window < 1:
            raise SettingsError(f"epochs_per_window is {epochs_per_window}; it is at least 1.")
        self._epochs = epochs_per_window
        if min_interval_s < 0:
            raise SettingsError(f"min_interval_s is {min_interval_s}; it is at least 0.")
        self._min_interval_nanos = round(min_interval_s * NANOS_PER_SECOND)
        self._tokens_max = tokens_max
        self._trainer_id = run_id if trainer_id is None else trainer_id
        self._settings = settings or Settings.load()
        self._progress = Progress(partial(print, flush=True) if progress else None)
        if gate is not None and release is None:
            raise SettingsError("there is a gate, and no release to offer versions to.", next_step="Name the release.")
        self._releasing: Releasing | None = None
        if release is not None:
            self._releasing = Releasing(self._settings, release, gate, candidate_share, self._progress.say)
        self._policy = Policy(model, versions_back=VERSIONS_BACK_MAX, **options)

    def run(self, windows: int | None = None) -> None:
        """Learn until SIGTERM or Ctrl-C, which end it after the step under way.

        Args:
            windows: end once the run has so many, those before a restart included.

        Raises:
            TrainingError: another process trains this run, something else began it, or a step was not committed.
            ServiceUnavailableError: Kafka does not answer, a topic is missing, or, with rules, the view is away.
            QueryError: a rule was refused; its window is not consumed.
        """
        asyncio.run(self._run(windows))

    async def steps(
        self, windows: int | None = None, stop: Callable[[], bool] = lambda: False
    ) -> AsyncGenerator[PlannedWindow]:
        """Learn, and give out each window once its step is ready: it is committed when the next is asked for.

        Args:
            windows: as for :meth:`run`.
            stop: called while a window or the gate is waited for; the loop ends where it says so.

        Raises:
            TrainingError, ServiceUnavailableError, QueryError: as :meth:`run`.
        """
        consumption = Consumption(
            self._run_id,
            trainer_id=self._trainer_id,
            made_with=self._made_with(),
            policy=self._policy,
            settings=self._settings,
            take_over=False,
            progress=self._progress,
            traffic_of=self._traffic,
        )
        taken: list[_Taken] = []
        due = [True]
        view = ViewClient(self._settings, lane=LANE) if self._rules else None

        def take(source: TrafficSource) -> Taken | None:
            if stop():
                raise _StopError
            if due:  # once after each commit, and after a start, as a commit may have been the last thing it did
                due.clear()
                self._offer(consumption, stop)
            assert consumption.run is not None  # noqa: S101  # it is open while it takes
            spent = consumption.run.history.windows.tokens
            if self._tokens_max is not None and spent >= self._tokens_max:
                self._progress.say(f"The budget of {self._tokens_max:,} tokens is spent.")
                raise _StopError
            window = source.next_window(stop=stop)
            if window is None:
                return None
            due.append(True)
            while self._releasing is not None and self._releasing.is_paused():
                if stop():
                    raise _StopError
                time.sleep(PAUSE_S)
            taken[:] = [_Taken(window, left_out_by(view, self._rules, window) if view else {})]
            return Taken(_groups(window), source.window)

        try:
            async with aclosing(consumption.steps(self._source, take, windows)) as made:
                async for step in made:
                    assert consumption.run is not None  # noqa: S101  # it is open while it has steps
                    history = consumption.run.history
                    yield await self._learn(step, taken[0], history)
                    if self._tokens_max is not None:
                        tokens = history.windows.tokens + step.metrics.get("batch/tokens", 0.0)
                        if tokens >= self._tokens_max:
                            self._progress.say(f"The budget of {self._tokens_max:,} tokens is spent.")
                            step.stop()
            await asyncio.to_thread(self._offer, consumption, stop)
        except _StopError:
            return
        finally:
            if view is not None:
                view.close()

    def dry_run(self) -> Iterator[PlannedWindow]:
        """The lesson of each window of the log so far, the open ones too; trains and writes nothing.

        Raises:
            ServiceUnavailableError, QueryError: as :meth:`run`.
        """
        settings, name = self._settings, self._trainer_id
        codec = codec_for(settings)
        group_id = f"{settings.topic_prefix}{name}-dry-run"
        steps, resources = (
            [record for _, record in read_topic(settings, topic, codec, group_id=group_id)]
            for topic in (TRAINING_STEPS, RESOURCES)
        )
        history = replay(steps, resources, trainer_id=name, run_id=self._run_id)
        check_same_run(self._run_id, history.made_with, self._made_with())
        with ExitStack() as opened:
            log = TrajectorySource(settings, group_id, run_id=self._traffic)
            opened.callback(log.close)
            source = self._source(Opening(settings, self._run_id, log, history, self._progress))
            view = ViewClient(settings, lane=LANE) if self._rules else None
            if view is not None:
                opened.callback(view.close)
            while (window := source.next_window(to_end=True)) is not None:
                yield self._planned(window, view, history, is_closed=True)
            for window in source.windows.open_windows():
                yield self._planned(window, view, history, is_closed=False)

    # --- inside

    def _offer(self, consumption: Consumption, stop: Callable[[], bool]) -> None:
        """Offer the newest committed version to the release."""
        run = consumption.run
        if self._releasing is not None and run is not None and run.resources is not None:
            try:
                self._releasing.consider(run.resources, run.run_id, stop)
            except StoppedError as error:
                raise _StopError from error

    def _made_with(self) -> dict[str, str]:
        return {
            "algorithm": f"a learner from traffic: {self._learner.name}",
            "traffic": f"{self._traffic or 'no run'}, agent {self._agent or 'any'}",
            "window": self._rule.text(),
            "epochs_per_window": str(self._epochs),
            **self._policy.made_with(),
        }

    def _source(self, opening: Opening) -> TrafficSource:
        settings, deletions = opening.settings, Deletions()
        group_id = f"{settings.topic_prefix}{self._trainer_id}-deletions"
        return TrafficSource(
            opening.log,
            self._rule,
            opening.history.windows,
            agent=self._agent,
            deletions=deletions,
            read_deletions=partial(deletions.read, settings, codec_for(settings), group_id=group_id),
            progress=opening.progress,
        )

    async def _run(self, windows: int | None) -> None:
        stopping = asyncio.Event()
        with _ending(stopping.set):
            async with aclosing(self.steps(windows, stopping.is_set)) as steps:
                async for planned in steps:
                    self._progress.say(told(planned))
                    if stopping.is_set():
                        self._progress.say("It ends after this window.")

    def _planned(self, window: Window, view: ViewClient | None, history: History, *, is_closed: bool) -> PlannedWindow:
        taken = _Taken(window, left_out_by(view, self._rules, window) if view else {})
        left_out = _left_out(taken)
        members = [t for t in window.members if (t.rollout_id, t.attempt_id) not in left_out]
        lesson = self._learner.lesson(members, history.windows.tasks)
        return PlannedWindow(window, left_out | lesson.not_trained, len(lesson.data), is_closed)

    async def _apart(self, lesson: Lesson) -> list[tuple[str, str]]:
        """The trajectories whose sampler is too far from the actor; at least one."""
        gaps = await self._policy.gaps(lesson.data)
        keys = [_key(trajectory) for trajectory, _ in lesson.data]
        known = {key: gap for key, gap in zip(keys, gaps, strict=True) if not math.isnan(gap)}
        apart = [key for key, gap in known.items() if gap > self._policy.gap_max]
        return apart or [max(known, key=lambda key: known[key])] if known else keys

    async def _learn(self, step: Step, taken: _Taken, history: History) -> PlannedWindow:
        """Make the step of a window."""
        window, left_out = taken.window, _left_out(taken)
        while True:
            members = [t for t in window.members if (t.rollout_id, t.attempt_id) not in left_out]
            lesson = self._learner.lesson(members, history.windows.tasks)
            if not lesson.data:
                break
            try:
                computed = await self._policy.forward_backward(lesson.data, loss=lesson.loss)
            except LogprobGapError as error:
                apart = await self._apart(lesson)
                self._progress.say(f"{len(apart)} trajectories of window {window.number} are left out: {error}")
                left_out |= dict.fromkeys(apart, Exclusion.LOGPROB_GAP.value)
                continue
            step.metrics |= computed | await self._policy.optim_step()
            for _ in range(1, self._epochs):
                step.metrics |= await self._policy.forward_backward(lesson.data, loss=lesson.loss)
                step.metrics |= await self._policy.optim_step()
            break
        step.metrics |= _metrics(members) | lesson.metrics
        assert step.learned is not None  # noqa: S101  # there is a policy
        assert step.window is not None  # noqa: S101  # there is a window
        calls = {(t.rollout_id, t.attempt_id): max(1, len(t.triplets)) for t in step.trajectories}
        for key, reason in (left_out | lesson.not_trained).items():
            step.learned.triplets_used.pop(key, None)
            step.learned.not_trained[key] = {reason: calls[key]}
        reasons: dict[str, int] = {}
        for reason in left_out.values():
            reasons[reason] = reasons.get(reason, 0) + 1
        step.window = step.window.model_copy(update={"left_out": reasons, "tasks": list(lesson.tasks)})
        before = history.windows.published_end_unix_nano
        is_time = before is None or window.end_unix_nano - before >= self._min_interval_nanos
        if step.learned.changed and is_time:
            await self._policy.publish()
        return PlannedWindow(window, left_out | lesson.not_trained, len(lesson.data))


def _key(trajectory: Trajectory) -> tuple[str, str]:
    return trajectory.rollout_id, trajectory.attempt_id


class _StopError(BaseException):  # no error: the run ends as one that was stopped
    """The learner was asked to end."""


def told(planned: PlannedWindow) -> str:
    """A window in one line."""
    window, reasons = planned.window, list(planned.left_out.values())
    counts = ", ".join(f"{reasons.count(reason)} {reason}" for reason in sorted(set(reasons)))
    reward = "no rewards" if planned.reward is None else f"mean reward {planned.reward:.3f}"
    return (
        f"Window {window.number}{'' if planned.is_closed else ' (open)'}: {len(window.members)} trajectories, "
        f"{reward}, {planned.learned} to learn from{f'; left out: {counts}' if counts else ''}."
    )


def _groups(window: Window) -> tuple[Group, ...]:
    """All that the window's step consumes, each by itself."""
    consumed = [*window.members, *(late.trajectory for late in window.late)]
    return tuple(Group(trajectory.rollout_id, (trajectory,)) for trajectory in consumed)


def _left_out(taken: _Taken) -> dict[tuple[str, str], str]:
    ruled = {
        (t.rollout_id, t.attempt_id): taken.ruled[t.rollout_id]
        for t in taken.window.members
        if t.rollout_id in taken.ruled
    }
    late = {(one.trajectory.rollout_id, one.trajectory.attempt_id): one.reason for one in taken.window.late}
    return ruled | late


def _metrics(members: Sequence[Trajectory]) -> dict[str, float]:
    rewards = [reward for t in members if (reward := rollout_score(t)) is not None]
    return {"learn/members": float(len(members))} | (
        {"reward/mean": math.fsum(rewards) / len(rewards)} if rewards else {}
    )


@contextmanager
def _ending(stop: Callable[[], None]) -> Generator[None]:
    """SIGTERM and Ctrl-C ask for the end, and do not break off a step."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
