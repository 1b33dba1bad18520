"""Who writes much pauses before the disk is full, and goes on by itself: on a small disk of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.core import Metric

from lightstream.runtime.disk import DiskRoom
from lightstream.runtime.settings import Settings
from lightstream.trainers.run.checkpoint import CheckpointFolder
from tests.support.small_disk import MIB, fill, small_disk
from tests.support.waiting import eventually


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 64 * MIB) as folder:
        yield folder


def settings_on(disk: Path, free_mib: int = 16) -> Settings:
    return Settings.load(data_dir=disk / "data", disk_free_bytes_min=free_mib * MIB)


def test_a_writer_pauses_below_the_least_and_goes_on_above(disk: Path) -> None:
    room = DiskRoom(settings_on(disk))
    assert room() is None
    ballast = fill(disk, leave_bytes=8 * MIB)
    reason = room()
    assert reason is not None
    assert "LIGHTSTREAM_DISK_FREE_BYTES_MIN" in reason
    assert str(disk) in reason
    done = threading.Event()

    def write() -> None:
        if room.wait(threading.Event()):
            done.set()

    threading.Thread(target=write, daemon=True).start()
    assert not done.is_set()
    ballast.unlink()
    assert done.wait(300)
    assert room() is None


def test_a_little_room_does_not_end_a_pause(disk: Path) -> None:
    room = DiskRoom(settings_on(disk))
    fill(disk, leave_bytes=8 * MIB)
    assert room() is not None
    fill(disk, leave_bytes=17 * MIB)
    assert room() is not None, "an eighth more has to be free"
    assert DiskRoom(settings_on(disk))() is None, "one that did not pause writes there"


def test_one_that_is_stopped_does_not_wait(disk: Path) -> None:
    fill(disk, leave_bytes=MIB)
    stopping = threading.Event()
    stopping.set()
    assert not DiskRoom(settings_on(disk)).wait(stopping)
    assert DiskRoom(settings_on(disk, free_mib=0)).wait(stopping), "without a least nobody waits"


def test_metrics_tell_free_space_and_the_least(disk: Path) -> None:
    room = DiskRoom(settings_on(disk), name="view")
    fill(disk, leave_bytes=8 * MIB)
    free, least = (_value(metric) for metric in room.readings())
    assert (free, least) == (room.free_bytes(), 16 * MIB)


def test_a_checkpoint_waits_for_room_for_one_as_large_as_the_last(disk: Path) -> None:
    """The least is there after it, too: 16 MiB beside a checkpoint of 20."""
    settings = settings_on(disk)
    folder = CheckpointFolder(disk / "run", DiskRoom(settings, disk / "run"))

    def weights(path: Path) -> None:
        (path / "model.safetensors").write_bytes(bytes(20 * MIB))

    first = folder.write(1, weights)
    ballast = fill(disk, leave_bytes=24 * MIB)
    writer = threading.Thread(target=folder.write, args=(2, weights), daemon=True)
    writer.start()
    assert sorted(folder.root.iterdir()) == [first]
    ballast.unlink()
    eventually(lambda: len(list(folder.root.glob("step-*"))) == 2, what="the second checkpoint")
    writer.join(300)


def _value(metric: Metric) -> float:
    (sample,) = metric.samples
    return sample.value


def test_a_disk_that_is_away_counts_as_full(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.statvfs", away)
    reason = DiskRoom(settings_on(disk))()
    assert reason is not None
    assert "Input/output error" in reason
