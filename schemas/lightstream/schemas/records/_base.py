"""The base of every Avro record."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict

__all__ = ["AttributeValue", "Attributes", "Record", "RecordEnum"]

AttributeValue: TypeAlias = "bool | int | float | str | bytes | list[AttributeValue] | dict[str, AttributeValue] | None"
Attributes: TypeAlias = dict[str, Any]
"""Attribute name -> value (an OTLP AnyValue): None, bool, int64, float, str, bytes, or lists and dicts of these."""


class Record(BaseModel):
    """One Avro record. The model is the source; ``avro/`` holds what is generated from it.

    Instances are immutable. Times are nanoseconds since 1970-01-01 UTC (``*_unix_nano``). Token ids and
    log-probabilities are packed little-endian ``bytes`` (see :mod:`lightstream.schemas.packing`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")


class RecordEnum(StrEnum):
    """An Avro enum. Each has ``UNKNOWN``: what an older reader sees in place of a symbol added later."""
