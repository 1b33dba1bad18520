"""Trajectories as Arrow tables: one row per call, or one row per merged segment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.packing import pack_int32
from lightstream.schemas.records import Trajectory, TripletRecord
from lightstream.stream_processors.core.segments import Segment, segments_of

RowLevel: TypeAlias = Literal["call", "segment"]
ROW_LEVELS: tuple[RowLevel, ...] = ("call", "segment")

BATCH_ROWS_MAX = 4096
BATCH_BYTES_MAX = 64 * 1024 * 1024
"""Of token data and tasks, in one batch (and row group): what writing a file of any size holds in memory. A task stands
on each row of its trajectory: a dictionary would be smaller, but files of Arrow take one for all batches only."""

Row: TypeAlias = tuple[Trajectory, TripletRecord | Segment]
Column: TypeAlias = tuple[str, pa.DataType, Callable[[Trajectory, Any], Any]]

_SHARED: tuple[Column, ...] = (
    ("rollout_id", pa.string(), lambda t, _: t.rollout_id),
    ("attempt_id", pa.string(), lambda t, _: t.attempt_id),
    ("revision", pa.int64(), lambda t, _: t.revision),
    ("run_id", pa.string(), lambda t, _: t.run_id),
    ("mode", pa.string(), lambda t, _: t.mode.value),
    ("group_id", pa.string(), lambda t, _: t.group_id),
    ("final", pa.bool_(), lambda t, _: t.final),
    ("status", pa.string(), lambda t, _: t.status.value),
    ("input_json", pa.string(), lambda t, _: t.input_json),
    ("trajectory_reward", pa.float64(), lambda t, _: t.reward),
    ("credit", pa.string(), lambda t, _: t.credit),
    ("reward_match", pa.string(), lambda t, _: t.reward_match),
    ("agent_name", pa.string(), lambda _, row: row.agent_name),
)
_INTS, _FLOATS, _BYTES = pa.list_(pa.int32()), pa.list_(pa.float32()), pa.list_(pa.uint8())
_OF_CALL: tuple[Column, ...] = (
    ("call_index", pa.int64(), lambda _, row: row.call_index),
    ("span_id", pa.string(), lambda _, row: row.span_id),
    ("trace_id", pa.string(), lambda _, row: row.trace_id),
    ("response_id", pa.string(), lambda _, row: row.response_id),
    ("model", pa.string(), lambda _, row: row.model),
    ("policy_version", pa.int64(), lambda _, row: row.policy_version),
    ("finish_reason", pa.string(), lambda _, row: row.finish_reason),
    ("reward", pa.float64(), lambda _, row: row.reward),
    ("prompt_token_ids", _INTS, lambda _, row: row.prompt_token_ids),
    ("response_token_ids", _INTS, lambda _, row: row.response_token_ids),
    ("response_logprobs", _FLOATS, lambda _, row: row.response_logprobs),
    ("response_mask", _BYTES, lambda _, row: row.response_mask),
)
_OF_SEGMENT: tuple[Column, ...] = (
    ("segment_index", pa.int64(), lambda _, row: row.index),
    ("start_reason", pa.string(), lambda _, row: row.start_reason.value),
    ("diverged_at", pa.int64(), lambda _, row: row.diverged_at),
    ("prompt_length", pa.int64(), lambda _, row: row.prompt_length),
    ("token_ids", _INTS, lambda _, row: row.token_ids),
    ("loss_mask", _BYTES, lambda _, row: row.loss_mask),
    ("logprobs", _FLOATS, lambda _, row: row.logprobs),
    ("policy_versions", _INTS, lambda _, row: row.policy_versions),
    ("rewards", _FLOATS, lambda _, row: row.rewards),
    ("call_indexes", _INTS, lambda _, row: pack_int32(turn.call_index for turn in row.turns)),
)
_COLUMNS: dict[RowLevel, tuple[Column, ...]] = {"call": _SHARED + _OF_CALL, "segment": _SHARED + _OF_SEGMENT}
_WIDTHS: dict[pa.DataType, int] = {_INTS: 4, _FLOATS: 4, _BYTES: 1}


def schema_of(level: RowLevel) -> pa.Schema:
    """Columns of a row.

    ``call``: ``prompt_token_ids`` int32 (P,), ``response_token_ids`` int32, ``response_logprobs`` float32 and
    ``response_mask`` uint8 (R,). ``segment``: arrays of the segment's T tokens, see ``core.segments.Segment``.

    Raises:
        SettingsError: there is no such level.
    """
    if level not in _COLUMNS:
        raise SettingsError(f"there is no row level {level!r}.", next_step=f"Use one of {list(ROW_LEVELS)}.")
    return pa.schema([(name, kind) for name, kind, _ in _COLUMNS[level]])


def arrow_batches(
    trajectories: Iterable[Trajectory], level: RowLevel, tokens_max: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Rows of ``trajectories``, in batches of bounded size.

    Args:
        tokens_max: longest merged segment, see ``core.segments.merge_segments``.

    Raises:
        SettingsError: there is no such level.
    """
    schema = schema_of(level)
    rows: list[Row] = []
    size = 0
    for trajectory in trajectories:
        items: Sequence[TripletRecord | Segment] = (
            trajectory.triplets if level == "call" else segments_of(trajectory, tokens_max)
        )
        task_bytes = len(trajectory.input_json.encode(errors="surrogatepass")) if items else 0
        for item in items:
            rows.append((trajectory, item))
            size += task_bytes + _token_bytes(item)
            if len(rows) == BATCH_ROWS_MAX or size >= BATCH_BYTES_MAX:
                yield _batch(rows, level, schema)
                rows, size = [], 0
    if rows:
        yield _batch(rows, level, schema)


def _token_bytes(item: TripletRecord | Segment) -> int:
    if isinstance(item, Segment):
        parts = (item.token_ids, item.loss_mask, item.logprobs, item.policy_versions, item.rewards)
        return sum(map(len, parts))
    return len(item.prompt_token_ids) + 3 * len(item.response_token_ids)


def _batch(rows: Sequence[Row], level: RowLevel, schema: pa.Schema) -> pa.RecordBatch:
    arrays: list[Any] = []
    for _, kind, read in _COLUMNS[level]:
        values = [read(trajectory, item) for trajectory, item in rows]
        arrays.append(_lists(values, _WIDTHS[kind], kind) if kind in _WIDTHS else pa.array(values, kind))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _lists(values: Sequence[bytes | None], width: int, kind: pa.DataType) -> Any:
    """Packed little-endian numbers of ``width`` bytes as one list array, without a loop over tokens."""
    starts: list[int | None] = []
    end = 0
    for value in values:
        starts.append(None if value is None else end)  # a list without a start is null
        end += len(value or b"") // width
    data = pa.py_buffer(b"".join([value or b"" for value in values]))
    of_kind: Any = kind  # its stubs know no element type of a list type in general
    numbers = pa.Array.from_buffers(of_kind.value_type, end, [None, data])
    return pa.ListArray.from_arrays(pa.array([*starts, end], pa.int32()), numbers, type=of_kind)
