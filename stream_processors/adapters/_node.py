"""The nodes of a tree of spans, and how they are built from a list, even a malformed one."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Self, TypeVar

from lightstream.schemas.attribute_names import AGL_ANNOTATION
from lightstream.schemas.records import SpanRecord
from lightstream.schemas.types import Span

from ..core import dialects
from ..core.assembly import Node, SpanKey, resolve
from ..core.rewards import encloses_reward, read_rewards
from ._records import record_of

logger = logging.getLogger(__name__)


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


N = TypeVar("N", bound=SpanNode)


VIRTUAL_ROOT = "virtual-root"
"""Id and name of the root that is made where spans have several."""


def parents_of(spans: Sequence[Span]) -> list[SpanKey | None]:
    """Key of each span's parent, ``None`` for a root.

    A parent is looked for in the span's own trace first, then in the others: spans that were made by hand may each
    have a trace id of their own.
    """
    keys = {(span.trace_id, span.span_id) for span in spans}
    elsewhere: dict[str, str] = {}
    for span in spans:
        elsewhere.setdefault(span.span_id, span.trace_id)
    parents: list[SpanKey | None] = []
    for span in spans:
        if not span.parent_id:
            parents.append(None)
        elif (span.trace_id, span.parent_id) in keys or span.parent_id not in elsewhere:
            parents.append((span.trace_id, span.parent_id))
        else:
            parents.append((elsewhere[span.parent_id], span.parent_id))
    return parents


def build(make: type[N], spans: Sequence[Span]) -> N:
    """A tree of ``spans``. Of spans with one id the first counts; a cycle is cut; missing parents are made up.

    Raises:
        ValueError: there are no spans.
    """
    if not spans:
        raise ValueError("a tree needs spans; there are none")
    parents = parents_of(spans)
    trees: dict[SpanKey, N] = {}
    nodes: dict[SpanKey, Node] = {}
    for position, (span, parent) in enumerate(zip(spans, parents, strict=True)):
        key = (span.trace_id, span.span_id)
        if key not in trees:
            trees[key] = make(span.span_id, span)
            trees[key].position = position
            nodes[key] = Node(parent, 0, position)
    cut = set(resolve(nodes).cycles)
    if cut:
        logger.warning("%d spans are among their own parents; the links that close the cycles are cut", len(cut))
    roots: list[N] = []
    missing: dict[SpanKey, N] = {}
    for key, tree in trees.items():
        parent = nodes[key].parent
        if parent is None or key in cut:
            roots.append(tree)
        elif parent in trees:
            trees[parent].children.append(tree)
        elif parent in missing:
            missing[parent].children.append(tree)
        else:
            missing[parent] = make(parent[1], _virtual(tree.span, parent[1]))
            missing[parent].made_up = True
            missing[parent].children.append(tree)
    for tree in missing.values():
        _stretch(tree)
    roots += missing.values()
    if len(roots) == 1:
        return roots[0]
    span = _virtual(roots[0].span, None, VIRTUAL_ROOT)
    span.start_time, span.end_time = roots[0].start_time, roots[-1].end_time
    root = make(VIRTUAL_ROOT, span)
    root.made_up = True
    root.children.extend(roots)
    return root


def _virtual(like: Span, span_id: str | None, name: str | None = None) -> Span:
    return Span.from_attributes(
        rollout_id=like.rollout_id,
        attempt_id=like.attempt_id,
        sequence_id=like.sequence_id,
        trace_id=like.trace_id,
        span_id=span_id,
        name=name,
        attributes={},
    )


def _stretch(tree: SpanNode) -> None:
    """Let a span that was made up last from its first child's start to its last child's end."""
    starts = [child.start_time for child in tree.children if child.start_time is not None]
    ends = [child.end_time for child in tree.children if child.end_time is not None]
    tree.span.start_time = min(starts, default=None)
    tree.span.end_time = max(ends, default=None)
