"""Attention of packed rows beside softmax written out; and an update of packed rows beside one of padded rows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightstream.schemas.errors import TrainingError
from lightstream.trainers import VERL, make_tiny_model
from lightstream.trainers.engines.verl.engine import VerlEngine
from lightstream.trainers.engines.verl.packed_attention import packed_attention
from lightstream.trainers.rollouts.batch import BatchArrays, build_arrays, select_rows
from lightstream.trainers.rollouts.groups import Group

from .support.trajectories import random_trajectory

LENGTHS = (1, 7, 3, 12)


def positions(lengths: tuple[int, ...] = LENGTHS) -> torch.Tensor:
    return torch.cat([torch.arange(length) for length in lengths])[None]


def states(heads: int, *, seed: int) -> torch.Tensor:
    return torch.randn(1, heads, sum(LENGTHS), 8, generator=torch.Generator().manual_seed(seed))


def attended_slowly(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, window: int | None) -> torch.Tensor:
    """(1, T, heads, size), token by token."""
    rows = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    heads, tokens, size = query.shape[1:]
    repeats = heads // key.shape[1]
    out = torch.zeros(1, tokens, heads, size)
    for head in range(heads):
        for token in range(tokens):
            first = 0 if window is None else max(0, token - window + 1)
            seen = [other for other in range(first, token + 1) if rows[other] == rows[token]]
            scores = key[0, head // repeats, seen] @ query[0, head, token] / math.sqrt(size)
            out[0, token, head] = torch.softmax(scores, 0) @ value[0, head // repeats, seen]
    return out


@pytest.mark.parametrize("key_heads", [4, 2, 1])
@pytest.mark.parametrize("window", [None, 4, 100])
def test_a_token_sees_its_own_row_alone(key_heads: int, window: int | None) -> None:
    query, key, value = states(4, seed=0), states(key_heads, seed=1), states(key_heads, seed=2)
    out, _ = packed_attention(None, query, key, value, None, position_ids=positions(), sliding_window=window)
    torch.testing.assert_close(out, attended_slowly(query, key, value, window))


@pytest.mark.parametrize(("given", "named"), [({"dropout": 0.1}, "dropout"), ({"position_ids": None}, "positions")])
def test_what_cannot_be_packed_is_named(given: dict[str, Any], named: str) -> None:
    same = states(2, seed=0)
    arguments: dict[str, Any] = {"position_ids": positions()} | given
    with pytest.raises(TrainingError, match=named):
        packed_attention(None, same, same, same, None, **arguments)


def batch() -> BatchArrays:
    groups: list[Group] = []
    for name in ("a", "b", "c"):
        rollouts = [
            random_trajectory(f"{name}-{i}", group_id=name, group_size=4, run_id="run", policy_version=0)
            for i in range(4)
        ]
        groups.append(Group(name, tuple(rollouts)))
    return build_arrays(select_rows(groups))


def test_an_update_of_packed_rows_is_that_of_padded_rows(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "model")
    arrays = batch()
    metrics: dict[bool, dict[str, float]] = {}
    for packs in (False, True):
        # Micro-batches of several rows, more than one of them.
        config = VERL(model=model, steps=2, learning_rate=1e-2, device="cpu", threads=1, tokens_per_micro_batch=64)
        engine = VerlEngine(config, model, packs=packs)
        engine.update(arrays, seed=(1,))
        metrics[packs] = engine.update(arrays, seed=(2,))  # by then, the weights have been updated once
    padded, packed = metrics[False], metrics[True]
    assert packed.pop("tokens/padded") == packed["tokens/computed"] < padded.pop("tokens/padded")
    assert packed == pytest.approx(padded, rel=1e-4, abs=1e-6)
