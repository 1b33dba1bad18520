"""A span and the spans below it, as :mod:`.tree` and its helpers need them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

from lightstream.schemas.attribute_names import AGL_ANNOTATION
from lightstream.schemas.records import SpanRecord
from lightstream.schemas.types import Span

from ..core import dialects
from ..core.rewards import encloses_reward, read_rewards
from ._records import record_of

__all__ = ["SpanNode"]


class SpanNode:
    """A span and the spans below it. Nothing in it recurses: any depth is fine.

    Attributes:
        id: id of the span.
        children: in the order in which they were given.
        position: the span's place among those the tree was built from; ``None`` for a node that was made by hand.
        made_up: there is no span for it: a parent that is missing, or a root above several.
    """

    def __init__(self, id: str, span: Span, children: list[Self] | None = None) -> None:  # noqa: A002  # its name there
        self.id = id
        self.span = span
        self.children: list[Self] = children or []
        self.position: int | None = None
        self.made_up = False
        self._record: tuple[Span, SpanRecord] | None = None

    @property
    def record(self) -> SpanRecord:
        """The span as the core reads it. Made once: set :attr:`span` to another one rather than change its name."""
        if self._record is None or self._record[0] is not self.span:
            self._record = self.span, record_of(self.span)
        return self._record[1]

    @property
    def start_time(self) -> float | None:
        """Seconds since 1970; ``None`` where it is not known."""
        return self.span.start_time

    @property
    def end_time(self) -> float | None:
        """Seconds since 1970; ``None`` where it is not known."""
        return self.span.end_time

    def traverse(self) -> list[Self]:
        """This node and all below it, depth first, parents before their children."""
        return list(self._nodes())

    def agent_name(self) -> str | None:
        """The agent that the span itself names."""
        return dialects.agent_name(self.record)

    def maybe_reward_dict(self) -> dict[str, Any]:
        """``{"type": "reward", "value": …}`` where the span is a reward, else empty."""
        for reading in read_rewards(self.record, 0):
            for dimension, _, value in reading.dimensions:
                if dimension == 0:
                    return {"type": "reward", "value": value}
        return {}

    def is_reward_span(self) -> bool:
        """Whether the span is a reward, or computes one: LLM calls below it are a judge's."""
        if encloses_reward(self.record):
            return True
        return self.span.name == AGL_ANNOTATION and bool(self.maybe_reward_dict())

    def _nodes(self) -> Iterator[Self]:
        stack: list[Self] = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))
