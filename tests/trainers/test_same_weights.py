"""Equal weights are equal however they are stored; a changed number is found."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from lightstream.trainers import make_tiny_model
from lightstream.trainers.run.checkpoint.weights import same_weights


def test_weights_are_compared_and_not_their_files(tmp_path: Path) -> None:
    first = make_tiny_model(tmp_path / "first")
    tensors = load_file(first / "model.safetensors")
    served, parts, changed = (tmp_path / name for name in ("served", "parts", "changed"))
    for folder in (served, parts, changed):
        folder.mkdir()
    narrow = {name: tensor.bfloat16() for name, tensor in tensors.items()}
    save_file(narrow, served / "model.safetensors", metadata={"another": "header"})
    names = sorted(tensors)
    save_file({name: tensors[name] for name in names[:3]}, parts / "model-00001-of-00002.safetensors")
    save_file({name: tensors[name] for name in names[3:]}, parts / "model-00002-of-00002.safetensors")
    assert same_weights(first, served)
    assert same_weights(first, parts)
    other = {name: tensor.clone() for name, tensor in tensors.items()}
    other[names[0]].view(-1)[-1] += 1e-7
    save_file(other, changed / "model.safetensors")
    assert not same_weights(first, changed)
    assert same_weights(served, changed), "of what a server in bfloat16 has, nothing changed"
    del other[names[0]]
    save_file(other, changed / "model.safetensors")
    assert not same_weights(first, changed)


def test_another_shape_is_another_tensor(tmp_path: Path) -> None:
    for name, rows in (("two", 2), ("three", 3)):
        (tmp_path / name).mkdir()
        save_file({"w": torch.zeros(rows, 1)}, tmp_path / name / "model.safetensors")
    assert not same_weights(tmp_path / "two", tmp_path / "three")
