"""Storage and queries: the view in SQL, the stores, exports and imports. Imports nothing until it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightstream.runtime.lazy import lazy_names

if TYPE_CHECKING:
    from .notebook import View, view

__all__ = ["View", "view"]

__getattr__, __dir__ = lazy_names(__name__, {"View": "notebook", "view": "notebook"})
