"""An adapter is a function from one shape of data to another, with a name and settings."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Generic, TypeVar

from lightstream.schemas.types import Span

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan  # noqa: F401  # named in a base class, as text

T_from = TypeVar("T_from")
T_to = TypeVar("T_to")


class Adapter(Generic[T_from, T_to]):
    """Converts a source; calling the adapter is calling :meth:`adapt`. Subclasses say how."""

    def __call__(self, source: T_from, /) -> T_to:
        """Convert ``source``."""
        return self.adapt(source)

    def adapt(self, source: T_from, /) -> T_to:
        """Convert ``source``, which is unchanged.

        Raises:
            NotImplementedError: the subclass does not say how.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how to adapt")


class OtelTraceAdapter(Adapter["Sequence[ReadableSpan]", T_to], Generic[T_to]):
    """An adapter of ended spans of the OpenTelemetry SDK."""


class TraceAdapter(Adapter[Sequence[Span], T_to], Generic[T_to]):
    """An adapter of the spans of an attempt, as stores give them."""


class RewardMatchPolicy(StrEnum):
    """Policies of Agent Lightning; both names are rules of the core (``core.rewards``).

    A reward that links to a call is that call's under either. "Before" means earlier in the log, never by the clock.
    """

    FIRST_SIBLING = "first_sibling"
    """The last call before the reward, among its siblings in the tree, that has no reward yet."""

    FIRST_OCCURRENCE = "first_occurrence"
    """The last call before the reward that has no reward yet."""
