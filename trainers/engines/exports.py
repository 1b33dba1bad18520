"""A batch straight from trajectories: for your own training loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from lightstream.schemas.records import Trajectory

from ..rollouts.batch import (
    BatchArrays,
    BatchRows,
    Exclusion,
    LossNormalisation,
    Scoring,
    build_arrays,
    select_rows,
    token_weights,
)
from ..rollouts.groups import Group, group_id_of


def select_trajectories(
    trajectories: Iterable[Trajectory],
    *,
    scoring: Scoring | None = None,
    prompt_tokens_max: int | None = None,
    response_tokens_max: int | None = None,
) -> BatchRows:
    """The rows that can be trained on, grouped as their trajectories are; the rest counted by reason.

    Args:
        scoring: how rewards become advantages; ``None``: the advantage is the reward, compared with nothing.
    """
    groups: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        groups.setdefault(group_id_of(trajectory), []).append(trajectory)
    return select_rows(
        (Group(group_id, tuple(members)) for group_id, members in groups.items()),
        scoring=scoring or Scoring(advantage="reinforce"),
        prompt_tokens_max=prompt_tokens_max,
        response_tokens_max=response_tokens_max,
    )


def torch_batch(arrays: BatchArrays) -> dict[str, Any]:
    """Every array of ``arrays`` as a torch tensor under its name; lists and counts stay as they are."""
    import torch

    batch: dict[str, Any] = {}
    for name in BatchArrays.__slots__:
        value = getattr(arrays, name)
        batch[name] = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
    return batch


def verl_batch(arrays: BatchArrays, normalisation: LossNormalisation = "token", **settings: Any) -> Any:
    """The TensorDict that verl's ``TrainingWorker`` takes, with advantages, and the weight of each token in the loss.

    Args:
        settings: non-tensor values for verl (temperature, …).
    """
    from .verl.tensors import to_tensordict

    return to_tensordict(arrays, token_weights(arrays, normalisation), arrays.response_mask == 1, **settings)


def save_torch_batch(trajectories: Iterable[Trajectory], path: Path) -> tuple[int, Counter[Exclusion]]:
    """Save :func:`torch_batch` of ``trajectories`` with ``torch.save``; returns its rows and the excluded rest.

    A batch is held in memory as a whole, as a training step holds it: choose trajectories accordingly.
    """
    import torch

    selected = select_trajectories(trajectories)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    torch.save(torch_batch(build_arrays(selected)), temporary)
    temporary.replace(path)
    del selected.excluded[Exclusion.NO_SIGNAL]  # a reward of 0 is in the batch
    return len(selected.rows), selected.excluded
