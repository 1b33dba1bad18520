"""The value of an argument that was not given, where ``None`` is a value of its own."""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeAlias

__all__ = ["UNSET", "Unset"]


class _UnsetType(Enum):
    """An enum of one, so that a type checker can narrow by ``is UNSET``, and pickling gives the same object."""

    UNSET = "UNSET"

    def __repr__(self) -> str:
        return "UNSET"

    def __bool__(self) -> bool:
        return False


UNSET: Final = _UnsetType.UNSET
Unset: TypeAlias = _UnsetType
