"""Follows the committed steps of a run and tells trackers of each, in a thread for each: training never waits for them.

What a tracker has been told is written down beside the run, so that a run that goes on continues its curves; a step
that was committed while its tracker was away, or just before a crash, is logged on the next start. A crash between the
logging of a step and its being written down logs that step again.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lightstream.runtime.files import private_folder, write_text
from lightstream.runtime.kafka import TopicTail
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.distribution import install_hint
from lightstream.schemas.errors import LightstreamError, SettingsError
from lightstream.schemas.records import StepOutcome, TrainingStep
from lightstream.schemas.topics import TRAINING_STEPS

from ..identity import OPTIONS
from .kinds import Samples, TrackedStep, Tracker

logger = logging.getLogger(__name__)

POLL_S = 0.2
FINISH_S = 20.0
"""Longest time for which the end of a training waits for its trackers."""

SAMPLES_MAX = 16
SAMPLE_CHARACTERS_MAX = 2000
COLUMNS = ("task", "input", "output", "score", "rollout_id")


class Trackers:
    """Tells trackers of the steps of one run while the block runs; at its end, of the remaining ones.

    One that raises is named in the log, and told of the rest when the run is started again. One that hangs is left
    behind. Neither costs the training anything but a thread.

    Args:
        settings: the cluster; the data folder has a file for each tracker.
        trainer_id, run_id: whose steps.
        trackers: which.

    Raises:
        SettingsError: two have one name, or the library of one is not installed.
    """

    def __init__(self, settings: Settings, *, trainer_id: str, run_id: str, trackers: Sequence[Tracker]) -> None:
        names = [tracker.name for tracker in trackers]
        if len(set(names)) < len(names):
            raise SettingsError(f"two trackers have one name: {', '.join(sorted(names))}.")
        for tracker in trackers:
            if find_spec(tracker.package) is None:
                raise SettingsError(
                    f"tracker {tracker.name} needs the package {tracker.package!r}, which is not installed.",
                    next_step=f"Install it with {install_hint(tracker.name)}.",
                )
        self._ending = threading.Event()
        self._followers = [_Follower(settings, trainer_id, run_id, tracker, self._ending) for tracker in trackers]

    def __enter__(self) -> Self:
        for follower in self._followers:
            follower.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        until_s = time.monotonic() + FINISH_S
        for follower in self._followers:
            follower.join(max(0.0, until_s - time.monotonic()))
            if follower.is_alive():
                logger.warning("tracker %s did not end in time; it goes on when the run does", follower.tracker.name)


class _Follower(threading.Thread):
    """One tracker and how far it is."""

    def __init__(
        self, settings: Settings, trainer_id: str, run_id: str, tracker: Tracker, ending: threading.Event
    ) -> None:
        super().__init__(name=f"lightstream-tracker-{tracker.name}", daemon=True)
        self.tracker = tracker
        self._settings = settings
        self._trainer_id = trainer_id
        self._run_id = run_id
        self._ending = ending
        self._file = settings.data_dir.absolute() / "trackers" / run_id / f"{tracker.name}.json"
        self._offset, self._step = 0, 0

    def run(self) -> None:
        try:
            self._follow()
        except Exception as error:  # a tracker's library may raise anything; training goes on
            what = error.message if isinstance(error, LightstreamError) else f"{type(error).__name__}: {error}"
            logger.warning(
                "tracker %s failed after step %d: %s. It is told of the rest when the run is started again.",
                self.tracker.name,
                self._step,
                what,
                exc_info=error,
            )

    def _follow(self) -> None:
        private_folder(self._file.parent)
        if self._file.is_file():
            state = json.loads(self._file.read_text("utf-8"))
            self._offset, self._step = state["offset"], state["step"]
        is_open = False
        try:
            for offset, record in self._records():
                if not is_open:  # with what the run is made with, which its steps say
                    self.tracker.open(self._run_id, record.made_with, self._step)
                    is_open = True
                if (step := _tracked(record)) is not None:
                    self.tracker.log(step)
                self._offset, self._step = offset + 1, record.step
                write_text(self._file, json.dumps({"offset": self._offset, "step": self._step}))
        finally:
            if is_open:
                self.tracker.close()

    def _records(self) -> Iterator[tuple[int, TrainingStep]]:
        """The steps of the run that the tracker was not told of; once it ends, those that are there by then."""
        codec = codec_for(self._settings)
        tail = TopicTail(self._settings, [TRAINING_STEPS], group_id=f"{self._trainer_id}-{self.tracker.name}")
        try:
            tail.partitions()
            tail.follow(TRAINING_STEPS, {0: self._offset})
            while True:
                is_last = self._ending.is_set()
                ends = tail.end_offsets(TRAINING_STEPS, [0]) if is_last else {}
                for message in tail.poll(POLL_S).records:
                    record = tail.decode(codec, message)
                    if isinstance(record, TrainingStep) and record.trainer_id == self._trainer_id:
                        yield message.offset() or 0, record
                if is_last and tail.next_offsets(TRAINING_STEPS)[0] >= ends[0]:
                    return
        finally:
            tail.close()


def _tracked(record: TrainingStep) -> TrackedStep | None:
    """A step as trackers are told of it; ``None`` for one that is made again under its number."""
    if record.outcome is StepOutcome.DISCARDED:
        return None
    is_measured = record.outcome is StepOutcome.MEASURED
    metrics = {
        name: value
        for name, value in record.metrics.items()
        if not is_measured or name.startswith("validation/") or name == "seconds/validation"
    }
    folders = json.loads(record.made_with.get(OPTIONS, "{}"))
    samples: list[Samples] = []
    if not is_measured:
        samples += _samples("rollouts", folders.get("rollout_data_dir"), record.step)
    if "validation/tasks" in metrics:  # of the policy before this step
        samples += _samples("validation", folders.get("validation_data_dir"), record.step - (not is_measured))
    return TrackedStep(record.step, metrics, record.ended_unix_nano, samples)


def _samples(kind: str, folder: str | None, step: int) -> list[Samples]:
    """The first generations of a step, where the run writes them down and they are still there."""
    file = Path(folder or "").expanduser() / f"{step}.jsonl"
    if folder is None or not file.is_file():
        return []
    with file.open(encoding="utf-8") as lines:
        found: list[Mapping[str, Any]] = [json.loads(line) for line, _ in zip(lines, range(SAMPLES_MAX), strict=False)]
    return [Samples(kind, COLUMNS, [[_shown(line.get(name)) for name in COLUMNS] for line in found])]


def _shown(value: Any) -> Any:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return value if isinstance(value, (int, float)) else text[:SAMPLE_CHARACTERS_MAX]
