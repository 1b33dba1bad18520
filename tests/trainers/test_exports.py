"""A batch straight from trajectories."""

from __future__ import annotations

from pathlib import Path

import torch

from lightstream.trainers.engines.exports import save_torch_batch, select_trajectories, torch_batch, verl_batch
from lightstream.trainers.rollouts.batch import BatchRows, Exclusion, Scoring, build_arrays

from .support.trajectories import make_trajectory, make_triplet

TRAJECTORIES = [
    make_trajectory("a", group_id="g", reward=1.0, triplets=[make_triplet([1, 2], [3], reward=1.0)]),
    make_trajectory("alone", reward=None, triplets=[make_triplet([9], [8, 7], reward=None)]),
    make_trajectory("b", group_id="g", reward=0.0, triplets=[make_triplet([4], [5, 6], reward=0.0)]),
]


def test_tensors_hold_every_call_that_can_be_trained_on(tmp_path: Path) -> None:
    path = tmp_path / "new" / "batch.pt"
    rows, excluded = save_torch_batch(TRAJECTORIES, path)
    assert (rows, excluded) == (2, {Exclusion.NO_REWARD: 1})
    batch = torch.load(path)
    assert batch["input_ids"].tolist() == [1, 2, 3, 4, 5, 6]
    assert batch["response_mask"].tolist() == [1, 1, 1]
    assert batch["advantages"].tolist() == [1.0, 0.0, 0.0]
    assert batch["rollout_scores"].tolist() == [1.0, 0.0]
    assert batch["rollout_groups"] == ["g", "g"]
    assert set(batch) == set(torch_batch(build_arrays(BatchRows())))
    assert [file.name for file in path.parent.iterdir()] == ["batch.pt"]


def test_verl_takes_the_same_calls_with_their_advantages() -> None:
    arrays = build_arrays(select_trajectories(TRAJECTORIES, scoring=Scoring()))
    batch = verl_batch(arrays, temperature=1.0)
    assert [row.tolist() for row in batch["responses"].unbind()] == [[3], [5, 6]]
    first, second = (row.tolist() for row in batch["advantages"].unbind())
    assert first[0] > 0 > second[0] == second[1]
