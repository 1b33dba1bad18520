"""Trajectories as the assembler wrote them, from the view."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any, TypeVar

from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.schemas.records import Drop, Record, RewardRecord, SourceRange, Trajectory, TripletRecord
from lightstream.stream_processors.core.dialects import images_of_request

from .conversations import requests_of
from .paging import Ask, rows_of

TRAJECTORIES_PER_PAGE = 200
"""Heads without their calls; the calls come as their trajectory is put together."""

R = TypeVar("R", bound=Record)
_PLACE = ("log_partition", "log_offset")
_SOURCE = "source_"


def read_trajectories(ask: Ask, where: str = "final") -> Iterator[Trajectory]:
    """The latest revision of each trajectory, in log order, for which ``where`` holds.

    Holds a page of heads, a page of calls and one trajectory.

    Args:
        where: a condition on the view ``trajectories``, in SQL.

    Raises:
        QueryError: ``where`` is not a condition, or the view could not answer.
        ServiceUnavailableError: no view answers.
    """
    heads = rows_of(ask, "SELECT * FROM trajectories", _PLACE, where=where, page_rows=TRAJECTORIES_PER_PAGE)
    for _, page in groupby(enumerate(heads), lambda item: item[0] // TRAJECTORIES_PER_PAGE):
        page_heads = [head for _, head in page]
        for partition, of_partition in groupby(page_heads, lambda head: head["log_partition"]):
            yield from _with_items(ask, partition, list(of_partition))


def _with_items(ask: Ask, partition: int, heads: list[dict[str, Any]]) -> Iterator[Trajectory]:
    within = (
        f"log_partition = {partition} AND log_offset BETWEEN {heads[0]['log_offset']} AND {heads[-1]['log_offset']}"
    )
    triplets, drops, rewards = (_Items(ask, table, within) for table in ("triplets_raw", "drops_raw", "rewards_raw"))
    for head in heads:
        offset = head["log_offset"]
        trajectory = _trajectory(
            head,
            triplets=[_triplet(row) for row in triplets.at(offset)],
            drops=[_record(Drop, row) for row in drops.at(offset)],
            rewards=[_record(RewardRecord, row) for row in rewards.at(offset)],
        )
        yield _with_images(ask, trajectory)


def _with_images(ask: Ask, trajectory: Trajectory) -> Trajectory:
    """The trajectory with the images of its calls, which the view has in their requests alone."""
    shown = [triplet for triplet in trajectory.triplets if triplet.images]
    if not shown:
        return trajectory
    requests = requests_of(ask, trajectory, [triplet.span_id for triplet in shown])
    images: dict[int, bytes] = {}
    for triplet in shown:
        found, _ = images_of_request(requests.get(triplet.span_id))
        images |= dict(zip(triplet.images, found, strict=False))  # no request: no images
    numbers = range(max(number for triplet in shown for number in triplet.images) + 1)
    return trajectory.model_copy(update={"images": [images.get(number, b"") for number in numbers]})


class _Items:
    """Rows of one table in log order, taken offset by offset."""

    def __init__(self, ask: Ask, table: str, where: str) -> None:
        self._rows = rows_of(ask, f"SELECT * FROM {table}", (*_PLACE, "item_index"), where=where)  # noqa: S608  # our names
        self._next = next(self._rows, None)

    def at(self, offset: int) -> list[dict[str, Any]]:
        """The rows of this offset; those before it are skipped (of revisions that were superseded)."""
        found: list[dict[str, Any]] = []
        while self._next is not None and self._next["log_offset"] <= offset:
            if self._next["log_offset"] == offset:
                found.append(self._next)
            self._next = next(self._rows, None)
        return found


def _trajectory(head: dict[str, Any], **items: Any) -> Trajectory:
    source = {name: head[_SOURCE + name] for name in SourceRange.model_fields}
    fields = {name: head[name] for name in Trajectory.model_fields if name in head and head[name] is not None}
    return Trajectory.model_validate(fields | items | {"source": source})


def _triplet(row: dict[str, Any]) -> TripletRecord:
    logprobs = row["response_logprobs"]
    values = row | {
        "prompt_token_ids": pack_int32(row["prompt_token_ids"]),
        "response_token_ids": pack_int32(row["response_token_ids"]),
        "response_logprobs": None if logprobs is None else pack_float32(logprobs),
        "response_mask": bytes(row["response_mask"]),
    }
    sources = row["field_sources"]
    values["field_sources"] = json.loads(sources) if isinstance(sources, str) else sources
    return _record(TripletRecord, values)


def _record(kind: type[R], row: dict[str, Any]) -> R:
    return kind.model_validate({name: row[name] for name in kind.model_fields if row.get(name) is not None})
