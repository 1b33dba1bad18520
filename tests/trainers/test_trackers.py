"""Trackers have what the ledger has, across restarts; one that raises or hangs keeps nobody."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.records import StepOutcome, TrainingStep
from lightstream.schemas.topics import TRAINING_STEPS
from lightstream.trainers import TensorBoard, Tracker, Trainer, Wandb, make_tiny_model
from lightstream.trainers.ledger.reading import read_topic
from lightstream.trainers.run.trackers import TrackedStep, following

from .support.instant_store import InstantStore
from .support.track import METRICS
from .test_trainer import verl_of

ROOT = Path(__file__).parents[2]
TRACKERS_PYTHON = os.environ.get("LIGHTSTREAM_TEST_TRACKERS_PYTHON", str(ROOT / ".venv-trackers/bin/python"))
WANDB_HEADER_BYTES, BLOCK_BYTES, FULL, LAST = 7, 32768, 1, 4


@pytest.fixture
def nobody_serves(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(following, "FINISH_S", 300.0)
    return settings.model_copy(update={"proxy_url": "http://127.0.0.1:9"})


def train(settings: Settings, folder: Path, steps: int, *trackers: Tracker) -> None:
    model = folder / "model"
    Trainer(
        algorithm=verl_of(
            model if model.is_dir() else make_tiny_model(model),
            steps=steps,
            validate_every=2,
            rollout_data_dir=folder / "rollouts",
            validation_data_dir=folder / "validation",
        ),
        n_runners=0,
        settings=settings,
        store=InstantStore(settings),
        trainer_id="tracked",
        trackers=trackers,
    ).fit(None, ["task"], ["a", "b"])


def ledger(settings: Settings) -> list[tuple[int, dict[str, float]]]:
    """Step and metrics of each record; of the measurement behind the last step, what it measured."""
    found: list[tuple[int, dict[str, float]]] = []
    for _, record in read_topic(settings, TRAINING_STEPS, codec_for(settings), group_id="test"):
        assert isinstance(record, TrainingStep)
        measured = record.outcome is StepOutcome.MEASURED
        metrics = {name: value for name, value in record.metrics.items() if not measured or "validation" in name}
        found.append((record.step, metrics))
    return found


def by_name(steps: Iterable[tuple[int, Mapping[str, float]]]) -> dict[str, list[tuple[int, float]]]:
    """Each metric as a curve."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for step, metrics in steps:
        for name, value in metrics.items():
            curves.setdefault(name, []).append((step, value))
    return curves


def test_tensorboard_has_the_ledgers_metrics_and_goes_on_after_a_restart(
    nobody_serves: Settings, tmp_path: Path
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for steps in (2, 3):
        train(nobody_serves, tmp_path, steps, TensorBoard(tmp_path / "tb"))
    events: Any = EventAccumulator(str(tmp_path / "tb" / "tracked"), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    logged = {
        name: [(event.step, event.tensor_proto.double_val[0]) for event in events.Tensors(name)]
        for name in events.Tags()["tensors"]
        if events.SummaryMetadata(name).plugin_data.plugin_name == "scalars"
    }
    assert logged == by_name(ledger(nobody_serves))
    assert [step for step, _ in logged["reward/mean"]] == [1, 2, 3]
    texts = [name for name in events.Tags()["tensors"] if name.startswith("samples/")]
    assert sorted(texts) == ["samples/rollouts/text_summary", "samples/validation/text_summary"]
    table = events.Tensors(texts[0])[0].tensor_proto.string_val[0].decode()
    assert table.startswith("| task | input | output | score | rollout_id |")


@pytest.mark.filterwarnings("ignore::getpass.GetPassWarning")  # it may ask for a key that nothing offline needs
def test_wandb_offline_has_the_ledgers_metrics(nobody_serves: Settings, tmp_path: Path) -> None:
    for steps in (2, 3):
        train(nobody_serves, tmp_path, steps, Wandb(mode="offline", folder=tmp_path))
    files = sorted((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
    assert [file.name for file in files] == ["run-tracked.wandb"] * 2
    items = [item for file in files for item in history_of(file)]
    logged = [
        (
            int(item["step"]),
            {name: value for name, value in item.items() if name != "step" and not name.startswith(("_", "samples/"))},
        )
        for item in items
    ]
    assert logged == ledger(nobody_serves)
    assert sum(name.startswith("samples/") for item in items for name in item) > 3


def history_of(file: Path) -> list[dict[str, Any]]:
    """The logged values, from the file that waits to be uploaded."""
    from wandb.proto import wandb_internal_pb2

    messages: Any = wandb_internal_pb2
    found: list[dict[str, Any]] = []
    for data in pieces_of(file.read_bytes()):
        record = messages.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            found.append({i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in items})
    return found


def pieces_of(log: bytes) -> Iterator[bytes]:
    """The records of a log as LevelDB writes it: blocks of 32 KiB; before each piece, checksum, length and kind."""
    at, whole = WANDB_HEADER_BYTES, b""
    while at + 7 <= len(log):
        if BLOCK_BYTES - at % BLOCK_BYTES < 7:
            at += BLOCK_BYTES - at % BLOCK_BYTES
            continue
        _, size, kind = struct.unpack_from("<IHB", log, at)
        whole += log[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (FULL, LAST):
            yield whole
            whole = b""


@dataclass
class Recording:
    """Keeps what it is told, and can be told to fail."""

    name: str = "recording"
    package: str = "json"
    fails_at: int = 0
    opened: list[int] = field(default_factory=list[int])
    steps: list[TrackedStep] = field(default_factory=list[TrackedStep])
    closed: int = 0

    def open(self, run_id: str, made_with: Mapping[str, str], after_step: int) -> None:
        assert (run_id, made_with["algorithm"]) == ("tracked", "VERL grpo")
        self.opened.append(after_step)

    def log(self, step: TrackedStep) -> None:
        if step.step == self.fails_at:
            raise ConnectionError("nobody is there")
        self.steps.append(step)

    def close(self) -> None:
        self.closed += 1


def test_one_that_raises_is_named_and_told_of_the_rest_later(nobody_serves: Settings, tmp_path: Path) -> None:
    failing, other = Recording("failing", fails_at=2), Recording("other")
    train(nobody_serves, tmp_path, 3, failing, other)
    assert [step for step, _ in ledger(nobody_serves)] == [1, 2, 3, 3]
    log = (nobody_serves.data_dir / "logs" / "tracked.log").read_text()
    assert "tracker failing failed after step 1: ConnectionError: nobody is there." in log
    assert [step.step for step in failing.steps] == [1]
    assert [step.step for step in other.steps] == [1, 2, 3, 3], "and the measurement behind the last"
    well = Recording("failing")
    train(nobody_serves, tmp_path, 3, well, other)
    assert [step.step for step in well.steps] == [2, 3, 3]
    assert (well.opened, other.opened, other.closed) == ([1], [0], 1)
    assert [(step.step, dict(step.metrics)) for step in other.steps] == ledger(nobody_serves)
    kinds = [[samples.kind for samples in step.samples] for step in other.steps]
    assert kinds == [["rollouts", "validation"], ["rollouts"], ["rollouts", "validation"], ["validation"]]


class Hanging(Recording):
    """Never returns."""

    def log(self, step: TrackedStep) -> None:
        threading.Event().wait()


def test_one_that_hangs_is_left_behind(
    nobody_serves: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "FINISH_S", 0.2)
    train(nobody_serves, tmp_path, 3, Hanging())
    assert [step for step, _ in ledger(nobody_serves)] == [1, 2, 3, 3]
    log = (nobody_serves.data_dir / "logs" / "tracked.log").read_text()
    assert "tracker recording did not end in time" in log


def test_one_without_its_package_and_two_of_a_name_are_refused(nobody_serves: Settings, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="tracker absent needs the package 'no_such_package'"):
        train(nobody_serves, tmp_path, 1, Recording("absent", package="no_such_package"))
    with pytest.raises(SettingsError, match="two trackers have one name: recording, recording"):
        train(nobody_serves, tmp_path, 1, Recording(), Recording())


@pytest.mark.trackers
@pytest.mark.parametrize("kind", ["mlflow", "trackio"])
def test_those_of_other_environments_have_every_number(kind: str, tmp_path: Path) -> None:
    program = [
        TRACKERS_PYTHON,
        "-m",
        "tests.trainers.support.track",
        kind,
        str(tmp_path),
    ]
    environment = os.environ | {"TRACKIO_DIR": str(tmp_path), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        program, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    expected = {
        name.replace("@", "_at_") if kind == "mlflow" else name: [[step, value * step] for step in (1, 2, 3)]
        for name, value in METRICS.items()
    }
    (found,) = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("[{"))
    assert found == [expected], "one run, each step once"
