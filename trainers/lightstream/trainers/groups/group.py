"""A complete group: the final trajectory of each of the samples of one task."""

from __future__ import annotations

from dataclasses import dataclass

from lightstream.schemas.records import Trajectory

__all__ = ["Group", "group_id_of"]


def group_id_of(trajectory: Trajectory) -> str:
    """Its group; a rollout without a group is its own."""
    return trajectory.group_id or trajectory.rollout_id


@dataclass(frozen=True, slots=True)
class Group:
    """``group_size`` final trajectories of one task, in the natural order of their rollout ids.

    The order does not depend on how they arrived, so the same trajectories always make the same batch.
    """

    group_id: str
    trajectories: tuple[Trajectory, ...]
