"""Arrow values as JSON."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any, cast

import duckdb
import pyarrow as pa

__all__ = ["json_answer"]


def json_answer(
    columns: list[str], types: list[str], table: pa.Table, *, truncated: bool, rebuilding: bool = False
) -> bytes:
    """The answer's JSON: ``{"columns", "types", "rows", "truncated", "rebuilding"}``.

    Maps become objects, bytes hex text, times ISO text, whole decimals integers, other decimals numbers, and numbers
    that JSON lacks text (``"NaN"``). Values with a date that Python lacks (before the year 1, after 9999) become text,
    as DuckDB writes them.
    """
    values = [_values(column) for column in table.columns]
    rows = list(zip(*values, strict=True)) if values else []
    answer = {
        "columns": columns,
        "types": types,
        "rows": rows,
        "truncated": truncated,
        "rebuilding": rebuilding,
    }
    try:
        text = json.dumps(answer, ensure_ascii=False, allow_nan=False, default=_plain)
    except (ValueError, TypeError):
        text = json.dumps(_safe(answer), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", errors="replace")


def _values(column: pa.ChunkedArray[Any]) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist(maps_as_pydicts="lossy")
        return values
    except (OverflowError, ValueError):
        return [_value_or_text(*pair) for pair in zip(column, _texts(column), strict=True)]


def _value_or_text(value: pa.Scalar[Any], text: str | None) -> Any:
    try:
        return value.as_py(maps_as_pydicts="lossy")
    except (OverflowError, ValueError):
        return text


def _texts(column: pa.ChunkedArray[Any]) -> list[str | None]:
    with duckdb.connect() as connection:
        rows = (
            connection.from_arrow(pa.Table.from_arrays([column], names=["value"]))
            .project("CAST(value AS VARCHAR)")
            .fetchall()
        )
    return [text for (text,) in rows]


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        return value.hex()
    isoformat = getattr(value, "isoformat", None)
    return isoformat() if callable(isoformat) else str(value)


def _safe(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, dict):
        return {str(_safe(key)): _safe(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_safe(item) for item in cast("list[Any]", value)]
    return value if isinstance(value, (str, int, float, bool)) or value is None else _plain(value)
