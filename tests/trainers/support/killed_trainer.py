"""A trainer that is killed between two lines of its own code, again and again, until it comes through.

Run as a program. Each try is a forked process that counts the lines it runs in the trainers' folder and sends itself
SIGKILL at one of them; the next try starts from what is on the disk and in the log. Heavy imports happen once. Some of
the kills can be aimed at the time between a step's weights, its transaction and the swap: at a line, or a few
milliseconds after the weights, so that calls into the Kafka client are hit as well.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import hashlib
import json
import math
import os
import random
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from examples.grpo_in_twenty_lines.grpo import grpo
from lightstream import trainers
from lightstream.runtime.settings import Settings
from lightstream.schemas.types import RolloutConfig
from lightstream.trainers import AgentPolicy, AlgorithmContext, Group, Trainer, checkpoint_folder, trajectories
from lightstream.trainers.run.checkpoint import CheckpointFolder
from lightstream.trainers.run.tasks import TaskRequest, step_group_id, step_requests
from tests.trainers.support.instant_store import InstantStore
from tests.trainers.support.trajectories import random_trajectory
from tests.trainers.support.two_policies import team_trajectory

GROUPS, SIZE = 2, 2
TRIES_MAX = 40
COMMIT_LINES, COMMIT_S = 250, 0.05
"""About as many lines, and as long, as there are between the weights of a step and their swap."""

TRACED = str(Path(trainers.__file__).parent)
COMPLETED, FAILED = 0, 1


def chain(context: AlgorithmContext, steps: int) -> None:
    """An algorithm without weights: each checkpoint is a hash over the one before and all that the step consumed."""
    if context.resources is None:
        folder = context.checkpoints.write(0, lambda path: _write(path, "start"))
        context.publish_resources(context.resources_record(0, {}, checkpoint=folder))
    for step in range(context.last_step + 1, steps + 1):
        started = context.now()
        groups = context.collect(context.enqueue_step(step, tasks=GROUPS, rollouts_per_task=SIZE))
        assert context.resources is not None
        link = _next_link(context.folder_of(context.resources.checkpoint_url or ""), groups)
        folder = context.checkpoints.write(step, functools.partial(_write, text=link))
        context.commit(
            step, groups, started_unix_nano=started, resources=context.resources_record(step, {}, checkpoint=folder)
        )
        context.keep_checkpoints(3)
    context.keep_checkpoints(3)  # a crash behind the last commit left this to do


async def consume(settings: Settings, steps: int) -> None:
    """The same as a consumer: each step has the rollouts of the next one made before it is committed."""
    store, folders = InstantStore(settings), CheckpointFolder(settings.data_dir / "checkpoints" / "trainer")

    async def ask(step: int) -> None:
        for group in range(GROUPS):
            name = step_group_id("trainer", step, group)
            asked = step_requests(
                name, TaskRequest(group), count=SIZE, run_id="trainer", mode="train", resources_id=None,
                config=RolloutConfig(),
                assembly=None,
            )  # fmt: skip
            await store.enqueue_many_rollouts(asked)

    await ask(1)
    consumed = trajectories("trainer", trainer_id="trainer", groups=GROUPS, steps=steps, settings=settings)
    async with aclosing(consumed) as steps_of_run:
        async for step in steps_of_run:
            address = None if step.resources is None else step.resources.checkpoint_url
            before = None if address is None else checkpoint_folder(address, settings)
            folders.keep_only([] if before is None else [before])
            link = _next_link(before, sorted(step.groups, key=lambda group: group.group_id))
            step.publish({}, checkpoint=folders.write(step.number, functools.partial(_write, text=link)))
            await ask(step.number + 1)


async def consume_with_policy(settings: Settings, model: str, steps: int) -> None:
    """The twenty lines of the example, on rollouts that are there as soon as they are asked for."""
    from lightstream.trainers import Policy

    store = InstantStore(settings)
    gap_max = float("inf")  # log-probabilities are made up
    policy = Policy(model, store=store, learning_rate=1e-2, logprob_gap_max=gap_max, device="cpu", threads=1)
    await grpo("trainer", policy, [f"task {i}" for i in range(7)], tasks=GROUPS, steps=steps, settings=settings)
    await store.close()


def _next_link(before: Path | None, groups: list[Group]) -> str:
    link = "" if before is None else (before / "chain").read_text()
    for group in groups:
        for trajectory in group.trajectories:
            link = hashlib.sha256((link + repr(trajectory)).encode()).hexdigest()
    return link


def _write(path: Path, text: str) -> None:
    (path / "chain").write_text(text)


def algorithm(arguments: argparse.Namespace) -> Any:
    """VERL where a model is named, else the chain."""
    if not arguments.model:
        return lambda context: chain(context, arguments.steps)
    from lightstream.trainers import VERL

    policies = {
        name: AgentPolicy(agents=name, reward=name, lora_rank=rank)
        for name, rank in (("planner", 4), ("solver", 2))
        if arguments.team
    }
    return VERL(
        model=arguments.model,
        policies=policies,
        steps=arguments.steps,
        tasks_per_step=GROUPS,
        rollouts_per_task=SIZE,
        learning_rate=1e-2,
        steps_ahead=arguments.ahead,
        checkpoint_every=arguments.checkpoint_every,
        advantage=arguments.advantage,
        device="cpu",
        threads=1,
        logprob_gap_max=math.inf,  # no model has sampled what it trains on
    )


def learn(settings: Settings, arguments: argparse.Namespace) -> None:
    """Learn from the traffic that is in the log."""
    trainers.Continuous(
        arguments.model,
        run_id="learner",
        agent="support",
        window=100.0,
        lateness=30.0,
        learner=arguments.learner,
        learning_rate=1e-2,
        logprob_gap_max=math.inf,  # log-probabilities are made up
        device="cpu",
        threads=1,
        settings=settings,
        progress=False,
    ).run(arguments.steps)


def fit(settings: Settings, arguments: argparse.Namespace) -> None:
    if arguments.learner:
        learn(settings, arguments)
        return
    if arguments.consumer and arguments.model:
        asyncio.run(consume_with_policy(settings, arguments.model, arguments.steps))
        return
    if arguments.consumer:
        asyncio.run(consume(settings, arguments.steps))
        return
    Trainer(
        algorithm=algorithm(arguments),
        n_runners=0,
        settings=settings,
        store=InstantStore(
            settings, make=functools.partial(team_trajectory, all_act=True) if arguments.team else random_trajectory
        ),
        trainer_id="trainer",
        progress=False,
    ).fit(None, [f"task {i}" for i in range(7)])


def part_of(settings: Settings, name: str) -> Settings:
    """Settings of one of the two trainings."""
    return settings.model_copy(
        update={"topic_prefix": f"{settings.topic_prefix}{name}.", "data_dir": settings.data_dir / name}
    )


@dataclass(frozen=True)
class Kill:
    """When a try is killed: at a line, of all or of those between weights and swap, or so long after the weights."""

    line: int = 0
    commit_line: int = 0
    after_weights_s: float = 0.0


class LineCounter:
    """Counts the lines that run in the trainers' folder; kills this process where ``kill`` says.

    Args:
        killed_at: gets the place of the kill: file, line and function.
    """

    def __init__(self, kill: Kill | None, killed_at: Path) -> None:
        self.lines = 0
        self.commit_lines = 0
        self._kill = kill or Kill()
        self._killed_at = killed_at
        self._in_commit = False

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "call":
            return self if frame.f_code.co_filename.startswith(TRACED) else None
        if event == "line":
            self.lines += 1
            self.commit_lines += self._in_commit
            if self.lines == self._kill.line or (self._in_commit and self.commit_lines == self._kill.commit_line):
                self._end(frame)
        elif event == "return":
            self._returned(frame.f_code.co_qualname)
        return self

    def _returned(self, function: str) -> None:
        if function == "CheckpointFolder.write":
            self._in_commit = True
            if self._kill.after_weights_s:
                timer = threading.Timer(self._kill.after_weights_s, self._end_here)
                timer.daemon = True
                timer.start()
        elif function == "TrainingLoop._swap":
            self._in_commit = False

    def _end_here(self) -> None:
        frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]  # public, by its documentation
        self._end(frames[threading.main_thread().ident or 0])

    def _end(self, frame: FrameType) -> None:
        place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_qualname}"
        self._killed_at.write_text(place + (" (commit)" if self._in_commit else ""))
        os.kill(os.getpid(), signal.SIGKILL)


def attempt(settings: Settings, arguments: argparse.Namespace, kill: Kill | None, counted: Path) -> int:
    """Fork, run, wait; the exit status as ``os.waitpid`` tells it."""
    child = os.fork()
    if child == 0:
        counter = LineCounter(kill, counted)
        status = FAILED
        try:
            threading.settrace(counter)  # a consumer's calls into Kafka are in a thread
            sys.settrace(counter)
            fit(settings, arguments)
            sys.settrace(None)
            counted.write_text(str(counter.lines))
            status = COMPLETED
        finally:
            sys.settrace(None)
            if status == FAILED:
                traceback.print_exc()
            sys.stderr.flush()
            os._exit(status)  # never back into the parent's code
    return os.waitpid(child, 0)[1]


def until_done(settings: Settings, arguments: argparse.Namespace, kills: Iterator[Kill]) -> tuple[int, list[str]]:
    """Try until it comes through: how many lines the last try ran, and where the others were killed."""
    killed_at: list[str] = []
    counted = settings.data_dir / "lines"
    for _ in range(TRIES_MAX):
        kill = next(kills, None)
        status = attempt(settings, arguments, kill, counted)
        if status == 0:
            return int(counted.read_text()), killed_at
        if kill is None or not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
            sys.exit(f"the trainer ended with status {status}; killed before at {killed_at}")
        killed_at.append(counted.read_text())
    sys.exit("too many tries")


def moments(arguments: argparse.Namespace, lines: int) -> Iterator[Kill]:
    """The kills, in random order. Those at any line are within the first steps of a try, or it would come through."""
    chance = random.Random(arguments.seed)
    lines_max = int(lines * min(2 / 3, 3 / arguments.steps))
    kinds = ["commit"] * arguments.commit_kills + ["line"] * (arguments.kills - arguments.commit_kills)
    chance.shuffle(kinds)
    for number, kind in enumerate(kinds):
        if kind == "line":
            yield Kill(line=chance.randint(1, lines_max))
        elif number % 2:
            yield Kill(commit_line=chance.randint(1, COMMIT_LINES))
        else:
            yield Kill(after_weights_s=chance.uniform(0.0, COMMIT_S))


def main() -> None:
    """Train once without and once with kills, each with topics and a folder of its own (both made already)."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--kills", type=int, required=True)
    parser.add_argument("--commit-kills", type=int, default=0, help="of these, how many between weights and swap")
    parser.add_argument("--model", default="")
    parser.add_argument("--consumer", type=int, default=0, help="1: an algorithm of one's own, as a consumer")
    parser.add_argument("--ahead", type=int, default=0)
    parser.add_argument("--checkpoint-every", type=int, default=2)
    parser.add_argument("--advantage", default="grpo")
    parser.add_argument("--learner", default="", help="a learner from the traffic in the log")
    parser.add_argument("--team", type=int, default=0, help="1: two agents, each of a policy of its own")
    arguments = parser.parse_args()
    settings = Settings.load()
    if arguments.model:
        from lightstream.trainers.engines.verl.runtime import load_verl

        import_module("verl.workers.engine_workers")
        load_verl("cpu")
    lines, _ = until_done(part_of(settings, "whole"), arguments, iter(()))
    _, killed_at = until_done(part_of(settings, "killed"), arguments, moments(arguments, lines))
    print(json.dumps({"lines": lines, "killed_at": killed_at}))


if __name__ == "__main__":
    main()
