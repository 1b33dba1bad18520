"""A reference that keeps nothing alive and is left behind where its holder is copied or sent to another process."""

from __future__ import annotations

import weakref
from typing import Any

__all__ = ["WeakHandle"]


class WeakHandle:
    """Refers to ``target`` as long as somebody else does. Pickled or copied, it refers to nothing."""

    __slots__ = ("_reference",)

    def __init__(self, target: Any = None) -> None:
        self._reference: weakref.ReferenceType[Any] | None = None if target is None else weakref.ref(target)

    def get(self) -> Any:
        """What it refers to, or ``None``."""
        return None if self._reference is None else self._reference()

    def __reduce__(self) -> tuple[type[WeakHandle], tuple[()]]:
        return WeakHandle, ()
