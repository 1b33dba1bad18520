"""Attributes that many records have in common, as those of a process have their resource."""

from __future__ import annotations

from typing import Any

__all__ = ["SharedAttributes"]


class SharedAttributes(dict[str, Any]):
    """Attributes that nobody changes any more: their bytes are kept with them after they were first written.

    Attributes:
        encoded: as an Avro map, once a writer made it.
    """

    __slots__ = ("encoded",)

    encoded: bytes | None

    def __init__(self, attributes: dict[str, Any]) -> None:
        super().__init__(attributes)
        self.encoded = None
