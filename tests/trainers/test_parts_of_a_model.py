"""Several processes that hold a model: each writes and reads its part, and any number goes on from what some wrote."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from lightstream.schemas.errors import TrainingError
from lightstream.trainers import VERL, make_tiny_model
from lightstream.trainers.engines.verl.engine import VerlEngine
from lightstream.trainers.engines.verl.own_part import weight_files
from lightstream.trainers.engines.verl.state import part_name
from lightstream.trainers.engines.verl.tensor_files import Block, TensorReader, TensorWriter
from lightstream.trainers.run.checkpoint import CheckpointFolder

from .support.ranks import batch, call_in_ranks

MIB = 1 << 20
NOISE_BYTES = 8 * MIB
"""Of a process that gathers and files: buffers of gloo's, the interpreter's own."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def tied_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose output layer is its embedding, with biases and a vocabulary that two and three do not divide."""
    from transformers import AutoModelForCausalLM, Qwen2Config

    folder = make_tiny_model(tmp_path_factory.mktemp("tied"))
    load: Any = Qwen2Config.from_pretrained
    config = load(folder)
    config.tie_word_embeddings, config.vocab_size = True, 265
    new: Any = AutoModelForCausalLM
    torch.manual_seed(0)
    new.from_config(config, dtype=torch.float32).save_pretrained(folder)
    return folder


def options(model: Path, **changes: Any) -> VERL:
    base: dict[str, Any] = {"learning_rate": 3e-3, "device": "cpu", "threads": 1, "lr_schedule": "cosine"}
    return VERL(model=model, steps=20, **(base | changes))


def new_folder(path: Path) -> Path:
    path.mkdir()
    return path


def saved(folder: Path) -> Mapping[str, torch.Tensor]:
    """All numbers of a checkpoint, whoever wrote them: weights, moments, counters."""
    files = [*weight_files(folder), *sorted(folder.glob("optimizer*.safetensors"))]
    stored = TensorReader(files)
    found = {name: torch.full(shape, torch.nan) for name, shape in stored.shapes.items()}
    for name, tensor in found.items():
        stored.fill(name, tensor)
    return found


def assert_same(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], within: float = 0.0) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=within, atol=within, msg=name)


def only(tensors: Mapping[str, torch.Tensor], names: Iterable[str]) -> Mapping[str, torch.Tensor]:
    return {name: tensors[name] for name in names}


@pytest.mark.parametrize("which", ["model", "tied_model"])
def test_two_processes_write_what_any_number_reads(which: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder: Path = request.getfixturevalue(which)
    config = options(folder).as_json()
    first, last = new_folder(tmp_path / "first"), new_folder(tmp_path / "last")
    whole: list[list[Any]] = [["update", 0], ["update", 1], ["save", str(first)], ["update", 2], ["save", str(last)]]
    expected = [results[4] for _, results in call_in_ranks(2, config, folder, whole, tmp_path / "whole")]
    assert {path.name for path in first.glob("*.safetensors")} == {
        f"{kind}-0000{rank}-of-00002.safetensors" for kind in ("model", "optimizer") for rank in (1, 2)
    }
    for count in (1, 2, 3):
        again, further = new_folder(tmp_path / f"again-{count}"), new_folder(tmp_path / f"further-{count}")
        calls: list[list[Any]] = [["save", str(again)], ["update", 2], ["save", str(further)]]
        found = call_in_ranks(count, config, first, calls, tmp_path / f"by-{count}")
        assert_same(saved(again), saved(first))
        if count == 2:
            assert [results[2] for _, results in found] == expected
            assert_same(saved(further), saved(last))
        for _, results in found:
            for name, value in expected[0].items():
                np.testing.assert_allclose(results[2][name], value, rtol=1e-6, atol=1e-6, err_msg=name)
        of_step, expected_of_step = saved(further), saved(last)
        moments = {name for name in expected_of_step if "/" in name}
        assert_same(only(of_step, moments), only(expected_of_step, moments), within=1e-6)
        weights = expected_of_step.keys() - moments  # Adam divides gradients that are nearly zero by themselves
        assert_same(only(of_step, weights), only(expected_of_step, weights), within=1e-5)


def test_adapter_and_critic_are_read_by_others(model: Path, tmp_path: Path) -> None:
    adapter = options(model, lora_rank=4).as_json()
    first, again = new_folder(tmp_path / "first"), new_folder(tmp_path / "again")
    call_in_ranks(2, adapter, model, [["update", 0], ["save", str(first)]], tmp_path / "by-2")
    assert (first / "adapter.safetensors").is_file()
    engine = VerlEngine(options(model, lora_rank=4), first, first=model)
    engine.save(again)
    assert_same(load_file(again / "adapter.safetensors"), load_file(first / "adapter.safetensors"))
    critic = options(model, advantage="gae")
    first, again = new_folder(tmp_path / "with"), new_folder(tmp_path / "with-again")
    call_in_ranks(2, critic.as_json(), model, [["update", 0], ["save", str(first)]], tmp_path / "critic")
    VerlEngine(critic, first).save(again)
    assert_same(saved(again / "critic"), saved(first / "critic"))


def test_checkpoints_of_0_2_0_are_read_by_two(model: Path, tmp_path: Path) -> None:
    """One process wrote model and optimiser's state, each into one file, and nothing of how many there are."""
    config = options(model)
    engine = VerlEngine(config, model)
    engine.update(batch(0))
    old, again = new_folder(tmp_path / "old"), new_folder(tmp_path / "again")
    engine.save(old)
    for name in ("model", "optimizer"):
        tensors = load_file(old / f"{name}.safetensors")
        save_file(tensors, tmp_path / "theirs", metadata={"format": "pt"} if name == "model" else None)
        if name == "model":
            assert (old / "model.safetensors").read_bytes() == (tmp_path / "theirs").read_bytes(), "as the library's"
        shutil.copy(tmp_path / "theirs", old / f"{name}.safetensors")
    values = json.loads((old / "trainer.json").read_text())
    del values["optimizer_files"]
    (old / "trainer.json").write_text(json.dumps(values))
    call_in_ranks(2, config.as_json(), old, [["save", str(again)]], tmp_path / "by-2")
    assert_same(saved(again), saved(old))
    assert json.loads((again / "trainer.json").read_text())["random"] == values["random"]


def test_no_process_has_the_whole_model(tmp_path: Path, model: Path) -> None:
    """Bytes that each of two processes grows by, against one that gathers."""
    large = make_tiny_model(tmp_path / "large", hidden_size=512, layers=8)
    config = options(large).as_json()
    size = (large / "model.safetensors").stat().st_size
    tensor = max(t.nbytes for t in load_file(large / "model.safetensors").values())
    folder, again, served = (new_folder(tmp_path / name) for name in ("folder", "again", "served"))
    calls: list[list[Any]] = [["update", 0], ["gather"], ["save_weights", str(served)], ["save", str(folder)]]
    before = call_in_ranks(2, config, large, calls, tmp_path / "before", first=model)
    after = call_in_ranks(2, config, folder, [["save", str(again)]], tmp_path / "after", first=model)
    for _, (start, _, gathered, weights, checkpoint) in before:
        assert gathered > size / 2 + tensor, (
            "the others are measured against it; a part of it may be memory freed before"
        )
        assert start <= size / 2 + tensor + NOISE_BYTES
        assert max(weights, checkpoint) <= size / 2 + tensor
    for _, (restart, checkpoint) in after:
        assert restart <= 3 * size / 2 + tensor + NOISE_BYTES, "weights and two moments"
        assert checkpoint <= size / 2 + tensor
    assert_same(saved(again), saved(folder))


def test_a_missing_part_and_another_model_are_named(model: Path, tmp_path: Path) -> None:
    config = options(model)
    folder = new_folder(tmp_path / "folder")
    call_in_ranks(2, config.as_json(), model, [["update", 0], ["save", str(folder)]], tmp_path / "by-2")
    for name in ("optimizer-00002-of-00002.safetensors", "model-00001-of-00002.safetensors"):
        (folder / name).rename(tmp_path / name)
        with pytest.raises(TrainingError, match=f"{name} is missing"):
            VerlEngine(config, folder)
        for _, results in call_in_ranks(2, config.as_json(), folder, [], tmp_path / f"without-{name}"):
            assert f"{name} is missing" in results[0]["error"]
        (tmp_path / name).rename(folder / name)
    other = new_folder(tmp_path / "other")
    engine = VerlEngine(options(make_tiny_model(tmp_path / "wide", hidden_size=96)), tmp_path / "wide")
    engine.save(other)
    for name in ("optimizer-00001-of-00002.safetensors", "optimizer-00002-of-00002.safetensors", "trainer.json"):
        shutil.copy(folder / name, other / name)
    with pytest.raises(TrainingError, match=r"in the shape \(\d+.*, and the model in \(") as told:
        VerlEngine(options(tmp_path / "wide"), other)
    assert "start a new run" in told.value.next_step


def test_a_disk_that_fills_at_one_part_is_named_and_the_checkpoint_before_stays(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path / "checkpoints")
    values = torch.arange(32.0).reshape(16, 2)

    def fill(into: Path) -> None:
        for rank in range(8):
            block = Block((16, 2), (2, 2), (2 * rank, 0))
            with TensorWriter(into / part_name("optimizer.safetensors", rank, 8), {"w": block}) as writer:
                writer.write("w", values[2 * rank : 2 * rank + 2])

    def fill_full_disk(into: Path) -> None:
        (into / "optimizer-00003-of-00008.safetensors").symlink_to("/dev/full")
        fill(into)

    before = folder.write(1, fill)
    with pytest.raises(TrainingError, match=r"step 2 cannot.*optimizer-00003-of-00008\.safetensors: No space left"):
        folder.write(2, fill_full_disk)
    assert list(folder.root.iterdir()) == [before]
    stored, read = TensorReader(sorted(before.glob("*.safetensors"))), torch.zeros(16, 2)
    stored.fill("w", read)
    assert torch.equal(read, values)


def test_a_full_disk_of_one_process_is_told_by_it(model: Path, tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "folder")
    (folder / "optimizer-00002-of-00002.safetensors").symlink_to("/dev/full")
    calls: list[list[Any]] = [["update", 0], ["save", str(folder)]]
    _, (_, second) = call_in_ranks(2, options(model).as_json(), model, calls, tmp_path / "by-2")
    assert "optimizer-00002-of-00002.safetensors: No space left on device" in second[-1]["error"]


def test_a_part_in_no_file_is_told(tmp_path: Path) -> None:
    with TensorWriter(tmp_path / "half", {"w": Block((4, 2), (2, 2), (2, 0))}) as writer:
        writer.write("w", torch.ones(2, 2))
    stored, target = TensorReader([tmp_path / "half"]), torch.zeros(4, 2)
    with pytest.raises(TrainingError, match="a part of 'w' is in no file"):
        stored.fill("w", target)
    (tmp_path / "half").write_bytes((tmp_path / "half").read_bytes()[:-1])
    with pytest.raises(TrainingError, match="half cannot be read"):
        TensorReader([tmp_path / "half"])
