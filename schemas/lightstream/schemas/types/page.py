"""One page of a query's answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar, overload

from .json_model import JsonModel

__all__ = ["PaginatedResult"]

T = TypeVar("T")


class PaginatedResult(JsonModel, Sequence[T], Generic[T]):
    """The items of a page, as a sequence, and how many there are in all.

    Attributes:
        items: what is on the page.
        limit: most items asked for; -1 for all.
        offset: items before this page.
        total: items that match, on whatever page.
    """

    items: Sequence[T]
    limit: int
    offset: int
    total: int

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self.items[index]

    def __iter__(self) -> Iterator[T]:  # type: ignore[override]  # a sequence's items; pydantic's would be its fields
        return iter(self.items)

    def __repr__(self) -> str:
        end = "" if self.limit == -1 else self.offset + self.limit
        first = repr(self.items[0]) if self.items else "empty"
        return f"<PaginatedResult {self.offset}:{end} of {self.total}: {first}{', …' if len(self.items) > 1 else ''}>"
