"""Values as JSON text that every JSON reader accepts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, cast

from lightstream.schemas.records import Record

__all__ = ["json_text"]


def json_text(value: Any) -> str:
    """``value`` as strict JSON: bytes as hex text, numbers that JSON lacks as text (``"NaN"``, ``"Infinity"``)."""
    if not value:
        return "{}" if isinstance(value, dict) else "[]"
    try:
        return _encode(value)
    except ValueError:
        return _encode(_finite(value))


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return dict(value.__dict__)
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"no JSON for {type(value).__name__}")


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_plain).encode


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, (Record, bytes)):
        return _finite(_plain(value))
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in cast("list[Any]", value)]
    return value
