"""A checkpoint is there whole, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightstream.schemas.errors import TrainingError
from lightstream.trainers.run.checkpoint import CheckpointFolder, link_or_copy


def fill(folder: Path) -> None:
    (folder / "model").write_text("weights")


def test_names_are_used_once(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path / "run")
    first, again = folder.write(3, fill), folder.write(3, fill)
    assert first != again
    assert first.name.startswith("step-000003-")
    assert (first / "model").read_text() == "weights"


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)

    def fail(path: Path) -> None:
        fill(path)
        raise OSError("no space left on device")

    with pytest.raises(TrainingError, match=r"checkpoint of step 1 cannot be written to .*: no space left"):
        folder.write(1, fail)
    assert list(tmp_path.iterdir()) == []


def test_all_but_the_kept_are_deleted(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    old, leftover, kept = folder.write(1, fill), folder.write(2, fill), folder.write(2, fill)
    (tmp_path / ".unfinished-step-000003-x").mkdir()
    deleted = folder.keep_only([kept])
    assert {path.name for path in deleted} == {old.name, leftover.name, ".unfinished-step-000003-x"}
    assert list(tmp_path.iterdir()) == [kept]


def test_a_linked_file_outlives_its_origin(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("text")
    link_or_copy(tmp_path / "a", tmp_path / "b")
    (tmp_path / "a").unlink()
    assert (tmp_path / "b").read_text() == "text"
