"""What records call a checkpoint, and the folder that it is when the data folder was moved, mounted, or changed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import TrainingError
from lightstream.trainers import checkpoint_folder, make_tiny_model
from lightstream.trainers.run.checkpoint import address_of, check_digest, existing_folder, folder_of, run_checkpoints


def settings_of(data_dir: Path, **changes: Path) -> Settings:
    return Settings.load(data_dir=data_dir, **changes)


def written(settings: Settings, seed: int = 1) -> Path:
    return run_checkpoints(settings, "digits").write(7, lambda folder: fill(folder, seed))


def fill(folder: Path, seed: int) -> None:
    make_tiny_model(folder, seed=seed)


def test_an_address_holds_where_the_data_folder_is_moved(tmp_path: Path) -> None:
    before = settings_of(tmp_path / "before")
    folder = written(before)
    address = address_of(before, folder)
    assert address == f"checkpoints/digits/{folder.name}"
    assert folder_of(before, address) == folder
    shutil.move(before.data_dir, tmp_path / "after")
    after = settings_of(tmp_path / "after")
    assert existing_folder(after, address, "digits-v7") == tmp_path / "after" / address
    assert checkpoint_folder(address, after) == tmp_path / "after" / address
    with pytest.raises(TrainingError, match=rf"{address} of 'digits-v7' is gone: .*LIGHTSTREAM_CHECKPOINT_ROOT"):
        existing_folder(before, address, "digits-v7")


def test_an_absolute_address_of_an_older_version_holds_too(tmp_path: Path) -> None:
    before = settings_of(tmp_path / "before")
    folder = written(before)
    for address in (str(folder), f"file://{folder}", str(folder / "planner")):
        assert folder_of(before, address) == Path(address.removeprefix("file://"))
    shutil.move(before.data_dir, tmp_path / "after")
    moved = tmp_path / "after" / "checkpoints" / "digits" / folder.name
    assert folder_of(settings_of(tmp_path / "after"), str(folder)) == moved


def test_a_root_that_a_setting_names_has_the_checkpoints(tmp_path: Path) -> None:
    here = settings_of(tmp_path / "data", checkpoint_root=tmp_path / "shared")
    folder = written(here)
    assert folder.is_relative_to(tmp_path / "shared")
    (tmp_path / "mounted").symlink_to(tmp_path / "shared")
    there = settings_of(tmp_path / "other", checkpoint_root=tmp_path / "mounted")
    assert existing_folder(there, address_of(here, folder), "digits-v7").samefile(folder)


def test_a_folder_outside_of_the_root_keeps_its_absolute_address(tmp_path: Path) -> None:
    assert address_of(settings_of(tmp_path / "data"), tmp_path / "elsewhere") == str(tmp_path / "elsewhere")


def test_weights_that_were_replaced_under_the_same_path_are_found_out(tmp_path: Path) -> None:
    settings = settings_of(tmp_path / "data")
    folder = written(settings)
    check_digest(folder)
    (folder / "notes.txt").write_text("mine", "utf-8")  # no weights
    check_digest(folder)
    weights = load_file(folder / "model.safetensors")
    name = max(weights, key=lambda each: weights[each].numel())
    weights[name] = weights[name] + torch.randn(weights[name].shape) * 1e-3
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(TrainingError, match="was replaced or damaged"):
        check_digest(folder)
    with pytest.raises(TrainingError, match="was replaced or damaged"):
        existing_folder(settings, address_of(settings, folder), "digits-v7")
    with pytest.raises(TrainingError, match="was replaced or damaged"):
        check_digest(folder / "planner")  # an adapter within it


def test_a_name_without_a_digest_is_not_checked(tmp_path: Path) -> None:
    check_digest(make_tiny_model(tmp_path / "step-000007-1a2b3c4d"))
