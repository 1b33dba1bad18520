"""Queries of rollouts: the fields that may be asked about, and where a state has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.schemas.records import RolloutMode, RolloutState
from lightstream.schemas.types import Rollout

from ._query import Query, query_of
from ._times import seconds

__all__ = ["exact_value_of_state", "rollouts_query", "value_of_state"]


def rollouts_query(
    *,
    status_in: Sequence[str] | None,
    rollout_id_in: Sequence[str] | None,
    rollout_id_contains: str | None,
    rollout_id_prefix: str | None,
    started_after: float | None,
    started_before: float | None,
    filter_logic: str,
    sort_by: str | None,
    sort_order: str,
    limit: int,
    offset: int,
) -> Query:
    """The arguments of ``query_rollouts``, checked.

    Raises:
        StoreError: one has a wrong type or a value that means nothing.
    """
    return query_of(
        Rollout,
        within={"status": ("status_in", status_in), "rollout_id": ("rollout_id_in", rollout_id_in)},
        contains={"rollout_id": rollout_id_contains},
        prefix={"rollout_id": rollout_id_prefix},
        times={"start_time": (started_after, started_before)},
        filter_logic=filter_logic,
        sort_by=sort_by,
        sort_order=sort_order,
        limit=limit,
        offset=offset,
    )


def value_of_state(state: RolloutState, field: str) -> Any:
    """The value of a rollout's field, without making the rollout."""
    return _VALUES[field](state)


def exact_value_of_state(state: RolloutState, field: str) -> Any:
    """As :func:`value_of_state`, times in nanoseconds: what was enqueued at once is nearer than seconds can tell."""
    return _NANOS[field](state) if field in _NANOS else _VALUES[field](state)


_NANOS: dict[str, Callable[[RolloutState], int | None]] = {
    "start_time": lambda state: state.rollout.enqueued_unix_nano,
    "end_time": lambda state: state.ended_unix_nano,
}

_VALUES: dict[str, Callable[[RolloutState], Any]] = {
    "rollout_id": lambda state: state.rollout.rollout_id,
    "status": lambda state: state.status.value,
    "start_time": lambda state: state.rollout.enqueued_unix_nano / NANOS_PER_SECOND,
    "end_time": lambda state: seconds(state.ended_unix_nano),
    "mode": lambda state: None if state.rollout.mode is RolloutMode.UNKNOWN else state.rollout.mode.value,
    "resources_id": lambda state: state.rollout.resources_id,
    "run_id": lambda state: state.rollout.run_id or None,
    "group_id": lambda state: state.rollout.group_id,
    "group_size": lambda state: state.rollout.group_size,
}
