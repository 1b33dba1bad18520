"""The calls of an attempt, by what a reward may name them by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..rewards import CallIndex, named_span
from ._calls_below import spans_around
from ._held import Held
from ._observation import Observation
from ._tree import Tree

__all__ = ["add_spans_around", "index_calls"]


def index_calls(
    calls: Sequence[Observation], held: Held, tree: Tree, rule: str, all_calls: Sequence[Observation] | None = None
) -> CallIndex:
    """What rewards may name calls by (in log order); only what the rule asks for where no reward has a link.

    Args:
        all_calls: all calls of the attempt, where ``calls`` are only some.
    """
    index = CallIndex([call.offset for call in calls])
    if rule == "first_sibling":
        index.scopes = [held.nodes[call.key].parent for call in calls]
    keys = {key for reading in held.rewards for key, _ in reading.links}
    if not keys:
        return index
    by_attribute = bool(keys - {"span_id", "trace_id", "gen_ai.response.id"})
    for position, call in enumerate(calls):
        for observation in (call, *call.joined):
            trace_id, span_id = observation.key
            index.add("span_id", span_id, position)
            index.add("trace_id", trace_id, position)
            if observation.read.response_id is not None:
                index.add("response_id", observation.read.response_id, position)
            attributes = held.nodes[observation.key].attributes if by_attribute else None
            if attributes:
                index.add_attributes({k: v for k, v in attributes.items() if k in keys}, position)
    if "span_id" in keys:
        position_of = {id(call): position for position, call in enumerate(calls)}
        add_spans_around(index, held, tree, calls if all_calls is None else all_calls, position_of)
    return index


def add_spans_around(
    index: CallIndex, held: Held, tree: Tree, calls: Sequence[Observation], position_of: Mapping[int, int]
) -> None:
    """Let links name spans around calls, see :func:`spans_around`."""
    span_ids = {named[0] for reading in held.rewards if (named := named_span(reading.links)) is not None}
    for span_id, around in spans_around(span_ids, calls, held.nodes, tree, position_of):
        index.around.setdefault(span_id, []).append(around)
