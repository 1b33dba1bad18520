"""Parts that the models of this package share."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, TypeAlias

from pydantic import BaseModel, ConfigDict


class JsonModel(BaseModel):
    """A model whose JSON keeps numbers that are infinite or not a number.

    They are written as ``Infinity``, ``-Infinity`` and ``NaN``, which Python's ``json`` reads and writes too; pydantic
    alone would make them ``null``.
    """

    model_config = ConfigDict(ser_json_inf_nan="constants")


def absent(value: Any) -> bool:
    """True if a dump leaves the field out."""
    return value is None


class _UnsetType(Enum):
    """An enum of one, so that a type checker can narrow by ``is UNSET``, and pickling gives the same object."""

    UNSET = "UNSET"

    def __repr__(self) -> str:
        return "UNSET"

    def __bool__(self) -> bool:
        return False


UNSET: Final = _UnsetType.UNSET
Unset: TypeAlias = _UnsetType
