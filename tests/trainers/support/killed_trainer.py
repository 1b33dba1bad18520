"""A trainer that is killed between two lines of its own code, again and again, until it comes through.

Run as a program. Each try is a forked process that counts the lines it runs in the trainers' folder and sends itself
SIGKILL at one of them; the next try starts from what is on the disk and in the log. Heavy imports happen once.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import random
import signal
import sys
import traceback
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from lightstream.runtime.settings import Settings
from lightstream.trainers import AlgorithmContext, Trainer
from lightstream.trainers import trainer as trainer_module
from tests.trainers.support.instant_store import InstantStore

GROUPS, SIZE = 2, 2
TRIES_MAX = 40
TRACED = str(Path(trainer_module.__file__).parent)
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
        link = (Path(context.resources.checkpoint_url or "") / "chain").read_text()
        for group in groups:
            for trajectory in group.trajectories:
                link = hashlib.sha256((link + repr(trajectory)).encode()).hexdigest()
        folder = context.checkpoints.write(step, functools.partial(_write, text=link))
        context.commit(
            step, groups, started_unix_nano=started, resources=context.resources_record(step, {}, checkpoint=folder)
        )
        context.keep_checkpoints(3)
    context.keep_checkpoints(3)  # a crash behind the last commit left this to do


def _write(path: Path, text: str) -> None:
    (path / "chain").write_text(text)


def algorithm(arguments: argparse.Namespace) -> Any:
    """VERL where a model is named, else the chain."""
    if not arguments.model:
        return lambda context: chain(context, arguments.steps)
    from lightstream.trainers import VERL

    return VERL(
        model=arguments.model,
        steps=arguments.steps,
        tasks_per_step=GROUPS,
        rollouts_per_task=SIZE,
        learning_rate=1e-2,
        steps_ahead=arguments.ahead,
        checkpoint_every=2,
        device="cpu",
        threads=1,
    )


def fit(settings: Settings, arguments: argparse.Namespace) -> None:
    Trainer(
        algorithm=algorithm(arguments),
        n_runners=0,
        settings=settings,
        store=InstantStore(settings),
        trainer_id="trainer",
        progress=False,
    ).fit(None, [f"task {i}" for i in range(7)])


def part_of(settings: Settings, name: str) -> Settings:
    """Settings of one of the two trainings."""
    return settings.model_copy(
        update={"topic_prefix": f"{settings.topic_prefix}{name}.", "data_dir": settings.data_dir / name}
    )


class LineCounter:
    """Counts the lines that run in the trainers' folder; kills this process at the ``kill_at``-th."""

    def __init__(self, kill_at: int | None) -> None:
        self.lines = 0
        self._kill_at = kill_at

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "call":
            return self if frame.f_code.co_filename.startswith(TRACED) else None
        if event == "line":
            self.lines += 1
            if self.lines == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return self


def attempt(settings: Settings, arguments: argparse.Namespace, kill_at: int | None, counted: Path) -> int:
    """Fork, run, wait; the exit status as ``os.waitpid`` tells it."""
    child = os.fork()
    if child == 0:
        counter = LineCounter(kill_at)
        status = FAILED
        try:
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


def until_done(settings: Settings, arguments: argparse.Namespace, kills: Iterator[int]) -> tuple[int, list[int]]:
    """Try until it comes through: how many lines the last try ran, and at which lines the others were killed."""
    killed_at: list[int] = []
    counted = settings.data_dir / "lines"
    for _ in range(TRIES_MAX):
        kill_at = next(kills, None)
        status = attempt(settings, arguments, kill_at, counted)
        if status == 0:
            return int(counted.read_text()), killed_at
        if kill_at is None or not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
            sys.exit(f"the trainer ended with status {status}; killed before at lines {killed_at}")
        killed_at.append(kill_at)
    sys.exit("too many tries")


def main() -> None:
    """Train once without and once with kills, each with topics and a folder of its own (both made already)."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--kills", type=int, required=True)
    parser.add_argument("--model", default="")
    parser.add_argument("--ahead", type=int, default=0)
    arguments = parser.parse_args()
    settings = Settings.load()
    chance = random.Random(arguments.seed)
    if arguments.model:
        from lightstream.trainers.verl_in_process.runtime import load_verl

        import_module("verl.workers.engine_workers")
        load_verl("cpu")
    lines, _ = until_done(part_of(settings, "whole"), arguments, iter(()))
    # Within the first two thirds: a try that starts late in the training has fewer lines left.
    kills = (chance.randint(1, 2 * lines // 3) for _ in range(arguments.kills))
    _, killed_at = until_done(part_of(settings, "killed"), arguments, kills)
    print(json.dumps({"lines": lines, "killed_at": killed_at}))


if __name__ == "__main__":
    main()
