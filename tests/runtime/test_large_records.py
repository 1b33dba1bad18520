"""Trajectories by address."""

from __future__ import annotations

import os
import socket
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lightstream.runtime.large_records import put_aside, sweep, whole_trajectory
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import ArtefactError
from lightstream.schemas.examples import example_of
from lightstream.schemas.records import Trajectory

CODEC = Codec()
ADDRESS = {"payload_url": "", "payload_sha256": "", "payload_size_bytes": 0}


def here(folder: Path) -> Settings:
    return Settings.load(large_records_dir=folder)


def test_what_is_put_aside_comes_back_whole(tmp_path: Path) -> None:
    trajectory = example_of(Trajectory)
    head = put_aside(trajectory, CODEC, tmp_path)
    assert (head.triplets, head.images, head.rewards, head.drops, head.notes) == ([], [], [], [], [])
    assert head.input_json == "null"
    assert (head.reward, head.call_count, head.final) == (trajectory.reward, trajectory.call_count, trajectory.final)
    whole = whole_trajectory(CODEC.decode(CODEC.encode(head)), CODEC, here(tmp_path))  # type: ignore[arg-type]  # it was a trajectory
    assert whole.payload_url == head.payload_url
    assert whole.model_copy(update=ADDRESS) == trajectory
    assert whole_trajectory(trajectory, CODEC, here(tmp_path)) is trajectory
    assert put_aside(trajectory, CODEC, tmp_path) == head, "again it is the same file"
    assert [path.suffix for path in tmp_path.rglob("*") if path.is_file()] == [".avro"]


def test_what_is_not_there_or_not_what_was_written_is_refused(tmp_path: Path) -> None:
    trajectory = example_of(Trajectory)
    head = put_aside(trajectory, CODEC, tmp_path)
    with pytest.raises(ArtefactError, match="the record names"):
        whole_trajectory(head.model_copy(update={"revision": 7}), CODEC, here(tmp_path))
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    with pytest.raises(ArtefactError, match="SHA-256"):
        whole_trajectory(head, CODEC, here(tmp_path))
    file.write_bytes(b"short")
    with pytest.raises(ArtefactError, match="bytes"):
        whole_trajectory(head, CODEC, here(tmp_path))
    file.unlink()
    with pytest.raises(ArtefactError, match="does not exist"):
        whole_trajectory(head, CODEC, here(tmp_path))


def note_here(monkeypatch: pytest.MonkeyPatch, name: str, function: Callable[..., Any], called: list[str]) -> None:
    """Note calls by this thread in place of making them; those of others, such as a running stack's, are made."""
    here = threading.get_ident()
    monkeypatch.setattr(
        name, lambda *a, **k: called.append(name) if threading.get_ident() == here else function(*a, **k)
    )


def test_only_files_below_the_folder_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of another folder, nor through a link out of it, nor a device, nor over a network."""
    folder = tmp_path / "large"
    trajectory = example_of(Trajectory)
    head = put_aside(trajectory, CODEC, folder)
    beside = put_aside(trajectory, CODEC, tmp_path / "large-other")
    (folder / "link").symlink_to(tmp_path / "large-other")
    os.mkfifo(folder / "pipe")
    path = beside.payload_url.removeprefix("file://")
    opened: list[str] = []
    note_here(monkeypatch, "builtins.open", open, opened)
    note_here(monkeypatch, "urllib.request.urlopen", urllib.request.urlopen, opened)
    note_here(monkeypatch, "socket.create_connection", socket.create_connection, opened)
    for url in (
        beside.payload_url,
        f"file://{folder}/../large-other/{path.rpartition('/large-other/')[2]}",
        f"file://{folder}/%2e%2e/large-other/{path.rpartition('/large-other/')[2]}",
        f"file://{folder}/link/{path.rpartition('/large-other/')[2]}",
        f"file://{folder}/pipe",
        f"file://{folder}/nul%00l",
        f"file://elsewhere{folder}/x",
        "file:///etc/passwd",
        path,
        "http://127.0.0.1:1/latest/meta-data",
        "http://169.254.169.254/latest/meta-data",
        f"https://example.com{folder}/x",
        "http://[",
    ):
        with pytest.raises(ArtefactError, match=r"is not below .*large, so nothing is read"):
            whole_trajectory(beside.model_copy(update={"payload_url": url}), CODEC, here(folder))
    assert opened == []
    monkeypatch.undo()
    assert whole_trajectory(head, CODEC, here(folder)).triplets


def test_without_a_setting_the_folder_is_that_of_the_embedded_broker(tmp_path: Path) -> None:
    """A training beside `lightstream up` knows the data folder alone."""
    head = put_aside(example_of(Trajectory), CODEC, tmp_path / "large-records")
    assert whole_trajectory(head, CODEC, Settings.load(data_dir=tmp_path)).triplets


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_sweep_deletes_what_was_put_aside_before_a_time_and_what_was_never_finished(tmp_path: Path) -> None:
    trajectory = example_of(Trajectory)
    for revision in (1, 2, 3):
        put_aside(trajectory.model_copy(update={"revision": revision}), CODEC, tmp_path)
    old, again, new = files(tmp_path)
    unfinished, stranger = old.with_name("x.part"), old.with_name("notes.txt")
    for path in (unfinished, stranger):
        path.write_text("x")
    for path in (old, again, unfinished, stranger):
        os.utime(path, (1_000, 1_000))
    for revision in (1, 2, 3):  # published again: as young as that
        put_aside(trajectory.model_copy(update={"revision": revision}), CODEC, tmp_path)
    os.utime(old, (1_000, 1_000))
    swept = sweep(tmp_path, 2_000, 10_000)
    assert swept.files == 2
    assert files(tmp_path) == sorted([again, new, stranger])
    assert sweep(tmp_path, 2_000, 10_000).files == 0
    assert sweep(tmp_path / "nowhere", 2_000, 10_000).files == 0
