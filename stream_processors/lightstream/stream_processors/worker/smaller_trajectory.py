"""What goes out of a trajectory that fits into no record: its end always does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lightstream.schemas.both_ends import both_ends
from lightstream.schemas.records import Drop, DropReason, Trajectory

__all__ = ["without_calls", "without_triplets"]

DETAILS_CHARS_MAX = 1_000_000
"""Of all drops together; those after it have no detail, only their reason."""
ERROR_CHARS_MAX = 10_000


def without_triplets(trajectory: Trajectory, detail: str) -> Trajectory:
    """The trajectory of an attempt whose data fits into no record: every call is dropped as ``too_large``."""
    drops = [
        Drop(
            span_id=triplet.span_id,
            trace_id=triplet.trace_id,
            response_id=triplet.response_id,
            reason=DropReason.TOO_LARGE,
            detail=detail,
            choice_index=triplet.choice_index,
            source_offset=triplet.source_offset,
        )
        for triplet in trajectory.triplets
    ]
    kept = list(_with_fewer_details([*drops, *trajectory.drops]))
    drops = [*kept[len(drops) :], *kept[: len(drops)]]
    return trajectory.model_copy(update={"triplets": [], "drops": drops, "input_json": "null", "rewards": []})


def _with_fewer_details(drops: Iterable[Drop]) -> Iterator[Drop]:
    room = DETAILS_CHARS_MAX
    for drop in drops:
        room -= len(drop.detail)
        yield drop if room >= 0 or not drop.detail else drop.model_copy(update={"detail": ""})


def without_calls(trajectory: Trajectory) -> Trajectory:
    """How the attempt ended, where not even a list of its calls fits: it counts as full from its beginning on.

    So the view shows each of its calls as ``too_large``, from the spans alone.
    """
    message = trajectory.error_message
    return trajectory.model_copy(
        update={
            "triplets": [],
            "drops": [],
            "rewards": [],
            "notes": [],
            "input_json": "null",
            "call_count": 0,
            "error_message": None if message is None else both_ends(message, ERROR_CHARS_MAX),
            "full_from_offset": max(trajectory.source.first_offset, 0),
        }
    )
