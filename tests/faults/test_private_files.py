"""What our programs write is for its user alone: folders 0700, files 0600."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from lightstream.runtime.files import close_to_others, private_folder, write_text
from lightstream.runtime.settings import Settings
from lightstream.trainers.run.checkpoint import CheckpointFolder
from lightstream.up import Stack
from tests.support.program import program


def open_to_others(folder: Path) -> list[str]:
    """Files and folders below ``folder``, itself among them, that another user may use in any way."""
    found = [folder, *(Path(parent, name) for parent, dirs, files in os.walk(folder) for name in (*dirs, *files))]
    return [
        f"{stat.filemode(path.lstat().st_mode)} {path}"
        for path in found
        if not path.is_symlink() and path.lstat().st_mode & 0o077
    ]


def test_up_writes_for_its_user_alone(tmp_path: Path) -> None:
    """Broker, worker, view, proxy and gateway; the view's file, logs, Kafka's, and what `run` has."""
    data_dir = tmp_path / "data"
    (data_dir / "view").mkdir(parents=True, mode=0o755)  # as an earlier version made it
    data_dir.chmod(0o700)
    settings = Settings.load(data_dir=data_dir, kafka_bootstrap_servers=None, gateway_port=0, gateway_grpc_port=0)
    with program(settings, "up") as up:
        up.wait_for("worker", "view", "proxy", "gateway")
    for folder in ("broker", "logs", "run", "view", "worker"):
        assert open_to_others(data_dir / folder) == []


def test_a_program_of_the_users_keeps_it_so_by_its_folders(tmp_path: Path) -> None:
    """Its umask is its own, so the folders are what others cannot pass."""

    def weights(folder: Path) -> None:
        (folder / "weights").write_bytes(b"x")

    data_dir = tmp_path / "data"
    with Stack(Settings.load(data_dir=data_dir, kafka_bootstrap_servers=None), services=[]) as stack:
        checkpoints = CheckpointFolder(stack.settings.data_dir / "checkpoints" / "run")
        checkpoints.write(1, weights)
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700
    for folder in ("broker", "run", "checkpoints"):
        assert stat.S_IMODE((data_dir / folder).stat().st_mode) == 0o700


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o770)
    private_folder(shared / "a" / "b")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (shared, shared / "a", shared / "a" / "b")]
    assert modes == [0o770, 0o700, 0o700]
    close_to_others([shared, shared / "nothing"])
    assert stat.S_IMODE(shared.stat().st_mode) == 0o700


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_small_files_are_private_under_any_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_text(tmp_path / "note", "text")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "note").stat().st_mode) == 0o600
