"""A batch straight from trajectories: for your own training loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lightstream.schemas.records import Trajectory

from .batch import BatchArrays, BatchRows, Exclusion, build_arrays, select_rows
from .groups import Group, group_id_of

__all__ = ["save_torch_batch", "select_trajectories", "torch_batch", "verl_batch"]


def select_trajectories(
    trajectories: Iterable[Trajectory], *, prompt_tokens_max: int | None = None, response_tokens_max: int | None = None
) -> BatchRows:
    """The calls that can be trained on, grouped as their trajectories are; the rest counted by reason."""
    groups: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        groups.setdefault(group_id_of(trajectory), []).append(trajectory)
    return select_rows(
        (Group(group_id, tuple(members)) for group_id, members in groups.items()),
        prompt_tokens_max=prompt_tokens_max,
        response_tokens_max=response_tokens_max,
    )


def torch_batch(arrays: BatchArrays) -> dict[str, Any]:
    """Every array of ``arrays`` as a torch tensor under its name; ``unit_groups`` stays a list of strings."""
    import torch

    batch: dict[str, Any] = {"unit_groups": arrays.unit_groups}
    for name in BatchArrays.__slots__:
        if name not in batch:
            batch[name] = torch.from_numpy(getattr(arrays, name))
    return batch


def verl_batch(arrays: BatchArrays, estimator: str = "grpo", **settings: Any) -> Any:
    """The TensorDict that verl's ``TrainingWorker`` takes, with advantages by ``grpo`` or ``dr_grpo``.

    Args:
        settings: non-tensor values for verl (temperature, …).
    """
    import numpy as np

    from .verl_in_process.advantage import row_advantages
    from .verl_in_process.tensors import to_tensordict

    compared = np.ones(len(arrays), dtype=np.bool_)
    return to_tensordict(arrays, row_advantages(arrays, estimator), compared, **settings)


def save_torch_batch(trajectories: Iterable[Trajectory], path: Path) -> tuple[int, Counter[Exclusion]]:
    """Save :func:`torch_batch` of ``trajectories`` with ``torch.save``; returns its rows and what was left out.

    A batch is held in memory as a whole, as a training step holds it: choose trajectories accordingly.
    """
    import torch

    selected = select_trajectories(trajectories)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    torch.save(torch_batch(build_arrays(selected.rows)), temporary)
    temporary.replace(path)
    return len(selected.rows), selected.excluded
