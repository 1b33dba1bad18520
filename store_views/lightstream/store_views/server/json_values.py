"""Arrow values as JSON."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa

__all__ = ["json_answer"]


def json_answer(columns: list[str], types: list[str], table: pa.Table, *, truncated: bool) -> bytes:
    """The answer's JSON: ``{"columns", "types", "rows", "truncated"}``.

    Bytes become hex text, times ISO text, whole decimals integers, other decimals numbers, and numbers that JSON lacks
    text (``"NaN"``).
    """
    values = [column.to_pylist() for column in table.columns]
    rows = list(zip(*values, strict=True)) if values else []
    answer = {"columns": columns, "types": types, "rows": rows, "truncated": truncated}
    try:
        text = json.dumps(answer, ensure_ascii=False, allow_nan=False, default=_plain)
    except (ValueError, TypeError):
        text = json.dumps(_safe(answer), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", errors="replace")


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
