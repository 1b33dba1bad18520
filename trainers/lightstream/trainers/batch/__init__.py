"""From groups to arrays: which calls are trained on, and their tokens, without a loop over tokens."""

from .arrays import BatchArrays, build_arrays
from .rows import BatchRows, Exclusion, Row, select_rows

__all__ = [
    "BatchArrays",
    "BatchRows",
    "Exclusion",
    "Row",
    "build_arrays",
    "select_rows",
]
