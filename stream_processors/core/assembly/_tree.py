"""The span tree of an attempt, without recursion: agent, reward and call that each span inherits from its ancestors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TokenData = tuple[bytes | None, bytes | None, bytes | None]
"""Prompt ids, response ids, log-probabilities, packed."""

SpanKey = tuple[str, str]
"""(trace id, span id)."""


@dataclass(slots=True)
class Node:
    """A span as assembly keeps it.

    Attributes:
        parent: its parent's key, ``None`` for a root.
        content: fingerprint of the span, to tell a repeated span from one with other content.
        tokens: the span's recorded token data, or a hash of it where the attempt had no room; ``None`` without any.
        offset: its offset in the log.
        agent_name: the agent this span itself names.
        encloses_reward: spans below compute a reward.
        tells_of_call: a dialect found an LLM call in it.
        has_times: start and end are set.
        end_unix_nano: its end; 0 where that is not set.
        attributes: short attributes, by which a reward may link to a call.
        incomplete: why its conversation is not whole, where it describes a call.
        left_out: kinds of what its conversation has and no message can hold.
    """

    parent: SpanKey | None
    content: int
    offset: int
    tokens: TokenData | int | None = None
    agent_name: str | None = None
    encloses_reward: bool = False
    tells_of_call: bool = False
    has_times: bool = True
    end_unix_nano: int = 0
    attributes: dict[str, str] | None = None
    incomplete: str = ""
    left_out: str = ""


@dataclass(frozen=True, slots=True)
class Inherited:
    """The surroundings of a span: agent (its own or the nearest above), a reward's computation, another call's span."""

    agent_name: str | None = None
    in_reward: bool = False
    call_above: SpanKey | None = None


@dataclass(slots=True)
class Tree:
    """Every span's surroundings, and the spans at which the tree is malformed (in log order)."""

    inherited: dict[SpanKey, Inherited] = field(default_factory=dict[SpanKey, Inherited])
    cycles: list[SpanKey] = field(default_factory=list[SpanKey])
    missing_parents: list[SpanKey] = field(default_factory=list[SpanKey])


_NOTHING = Inherited()


def resolve(nodes: Mapping[SpanKey, Node]) -> Tree:
    """Resolve all spans in linear time, at any depth.

    A parent that is not in the attempt counts as a root. A cycle is cut at the link that closes it: the first of its
    spans met becomes a root, and no span is lost.
    """
    tree = Tree()
    done = tree.inherited
    for start, node in nodes.items():
        if node.parent is None:  # most spans of a proxy
            done[start] = _below(_NOTHING, node, None, None)
            continue
        if start not in done:
            _resolve_path(start, nodes, tree)
    return tree


def _resolve_path(start: SpanKey, nodes: Mapping[SpanKey, Node], tree: Tree) -> None:
    path: dict[SpanKey, Node] = {}
    key: SpanKey | None = start
    while key is not None and key not in tree.inherited:
        node = nodes.get(key)
        if node is None:
            tree.missing_parents.append(next(reversed(path)))
            key = None
        elif key in path:
            tree.cycles.append(next(reversed(path)))
            key = None
        else:
            path[key] = node
            key = node.parent
    above = tree.inherited[key] if key is not None else _NOTHING
    above_node = nodes[key] if key is not None else None
    for below in reversed(path):
        above = _below(above, path[below], key, above_node)
        tree.inherited[below] = above
        key, above_node = below, path[below]


def _below(above: Inherited, node: Node, parent: SpanKey | None, parent_node: Node | None) -> Inherited:
    """The surroundings of ``node``, from those of its parent."""
    agent = node.agent_name if node.agent_name is not None else above.agent_name
    if parent_node is None:
        return _NOTHING if agent is None else Inherited(agent)
    in_reward = above.in_reward or parent_node.encloses_reward
    call_above = parent if parent_node.tells_of_call else above.call_above
    if agent == above.agent_name and in_reward == above.in_reward and call_above == above.call_above:
        return above
    return Inherited(agent, in_reward, call_above)
