"""Nested values that were spelled out as flat attribute names: ``a.0.b = 1`` is ``{"a": [{"b": 1}]}``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEPTH_MAX = 64
"""Names with more dots do not structure messages; their rest stays one key."""

INDEX_DIGITS_MAX = 9
"""Longer whole numbers are names like any other: no list is that long, and Python refuses to read 5,000 digits."""


def unflattened(attributes: Mapping[str, Any], prefix: str) -> Any:
    """The nested value below ``prefix.``; ``None`` where there is none.

    Mappings whose keys are exactly 0 … n-1 become lists. A name that is also the beginning of another gives way.
    """
    start = prefix + "."
    tree = _Node()
    for name, value in attributes.items():
        if name.startswith(start):
            _put(tree, name[len(start) :].split(".", DEPTH_MAX), value)
    return _as_lists(tree) if tree else None


def grouped(attributes: Mapping[str, Any], prefix: str) -> dict[str, Any] | list[Any]:
    """As :func:`unflattened`, but any whole numbers among the keys make a list, in their order; ``{}`` for nothing.

    Names next to the numbers are left out (``gen_ai.prompt.prompt_filter_results`` next to ``gen_ai.prompt.0.role``).
    """
    start = prefix + "."
    tree = _Node()
    for name, value in attributes.items():
        if name.startswith(start):
            _put(tree, name[len(start) :].split(".", DEPTH_MAX), value)
    result: dict[str, Any] | list[Any] = _with_any_numbers(tree)
    return result


def in_order(values: Mapping[str, Any]) -> list[Any]:
    """Entries of ``values`` whose keys are whole numbers, by number."""
    indices = (key for key in values if key.isdecimal() and len(key) <= INDEX_DIGITS_MAX)
    return [values[key] for key in sorted(indices, key=int)]


class _Node(dict[str, Any]):
    """A mapping made here, which may be changed; any other belongs to the span."""


def _put(tree: _Node, parts: list[str], value: Any) -> None:
    node = tree
    for part in parts[:-1]:
        below = node.get(part)
        if type(below) is not _Node:
            below = node[part] = _Node(below if type(below) is dict else {})
        node = below
    if not isinstance(node.get(parts[-1]), dict):
        node[parts[-1]] = value


def _as_lists(node: Any) -> Any:
    """Depth is bounded by :data:`DEPTH_MAX`."""
    if not isinstance(node, dict):
        return node
    values = {key: _as_lists(value) for key, value in node.items()}
    if values and all(key.isdecimal() for key in values):
        items = [values.get(str(index)) for index in range(len(values))]
        if all(str(index) in values for index in range(len(values))):
            return items
    return values


def _with_any_numbers(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    values = {key: _with_any_numbers(value) for key, value in node.items()}
    return in_order(values) or values
