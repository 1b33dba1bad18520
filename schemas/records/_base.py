"""The base of every Avro record."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """One Avro record. The model is the source; ``avro/`` holds what is generated from it.

    The docstring of a field is its meaning, which the documentation of the tables repeats.

    Instances are immutable. Times are nanoseconds since 1970-01-01 UTC (``*_unix_nano``). Token ids and
    log-probabilities are packed little-endian ``bytes`` (see :mod:`lightstream.schemas.packing`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


R = TypeVar("R", bound=Record)
_new = object.__new__
_SLOTS = "__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"
_set_values, _set_fields_set, _set_extra, _set_private = (vars(BaseModel)[slot].__set__ for slot in _SLOTS)
"""Slots of pydantic's instances, set directly: half a microsecond quicker than by name."""


def unchecked(record: type[R], values: dict[str, Any], fields_set: set[str]) -> R:
    """A record of all its fields' values, which are known to have the right types.

    ``values`` are taken over; ``fields_set`` may be shared, as records are not changed.
    """
    instance = _new(record)
    _set_values(instance, values)
    _set_fields_set(instance, fields_set)
    _set_extra(instance, None)
    _set_private(instance, None)
    return instance


class RecordEnum(StrEnum):
    """An Avro enum. Each has ``UNKNOWN``: what an older reader sees in place of a symbol added later."""
