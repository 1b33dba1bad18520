"""A span that a reward names although it is no call: an agent's, an operation's, a chain's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["SpanAround", "named_span"]


@dataclass(frozen=True, slots=True)
class SpanAround:
    """What a reward for such a span rewards.

    Attributes:
        trace_id: the span's trace.
        calls: the calls below it, ascending.
        is_above_all: it is a root, or all calls are below it: the reward is for the whole trajectory.
        too_many: more calls are below it than a link may name.
    """

    trace_id: str
    calls: Sequence[int] = ()
    is_above_all: bool = False
    too_many: bool = False


def named_span(links: Sequence[tuple[str, str]]) -> tuple[str, str | None] | None:
    """The span that links name by its id, and the trace they name beside it, if any; ``None``: they name none so."""
    values = dict(links)
    if len(values) < len(links) or "span_id" not in values or not values.keys() <= {"span_id", "trace_id"}:
        return None
    return values["span_id"], values.get("trace_id")
