"""Nested values as flat attribute names, and back: ``{"a": [{"b": 1}]}`` is ``a.0.b = 1``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

DEPTH_MAX = 64
"""Deeper structures are not attributes; most likely they contain themselves."""

_PLAIN = (str, bool, int, float)


def flatten_attributes(
    nested_data: Mapping[str, Any] | list[Any] | tuple[Any, ...], *, expand_leaf_lists: bool = False
) -> dict[str, Any]:
    """``nested_data`` with one name per value.

    Args:
        nested_data: mappings and lists, nested at will. Empty ones leave nothing behind.
        expand_leaf_lists: ``False`` keeps lists of plain values of one type as they are.

    Raises:
        ValueError: a name is not a string, or it is nested deeper than 64 levels.
    """
    flat: dict[str, Any] = {}
    _flatten(flat, "", nested_data, 0, expand_leaf_lists)
    return flat


def unflatten_attributes(flat_data: Mapping[str, Any]) -> dict[str, Any] | list[Any]:
    """Undo :func:`flatten_attributes`. Names 0, 1, 2, … without a gap become a list.

    Where a name is both a value and a prefix of others, the one that comes last counts.
    """
    root: dict[str, Any] = {}
    for name, value in flat_data.items():
        node = root
        *path, last = name.split(".")
        for part in path:
            below = node.get(part)
            if not isinstance(below, dict):
                below = node[part] = {}
            node = cast("dict[str, Any]", below)
        node[last] = value
    return cast("dict[str, Any] | list[Any]", _with_lists(root))


def filter_attributes(attributes: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Attributes named ``prefix`` or ``prefix.…``."""
    return {name: value for name, value in attributes.items() if name == prefix or name.startswith(f"{prefix}.")}


def filter_and_unflatten_attributes(attributes: Mapping[str, Any], prefix: str) -> dict[str, Any] | list[Any]:
    """The values below ``prefix``, nested again.

    Raises:
        ValueError: ``prefix`` itself has a value.
    """
    below = filter_attributes(attributes, prefix)
    if prefix in below:
        raise ValueError(f"{prefix!r} has a value of its own, so nothing can be nested in it: {below[prefix]!r:.200}")
    return unflatten_attributes({name[len(prefix) + 1 :]: value for name, value in below.items()})


def _flatten(flat: dict[str, Any], name: str, value: Any, depth: int, expand: bool) -> None:
    if depth > DEPTH_MAX:
        raise ValueError(f"{name[:200]}… is nested deeper than {DEPTH_MAX} levels")
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ValueError(f"below {name!r} the name {key!r:.200} must be a string, not {type(key).__name__}")
            _flatten(flat, f"{name}.{key}" if name else key, item, depth + 1, expand)
    elif isinstance(value, (list, tuple)):
        items = list(cast("list[Any]", value))
        if items and name and not expand and len(kinds := set(map(type, items))) == 1 and kinds.issubset(_PLAIN):
            flat[name] = items
            return
        for index, item in enumerate(items):
            _flatten(flat, f"{name}.{index}" if name else str(index), item, depth + 1, expand)
    else:
        flat[name] = value


def _with_lists(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    children = {key: _with_lists(value) for key, value in cast("dict[str, Any]", node).items()}
    digits = len(str(len(children)))  # a longer number is not one of their indices
    numbers = sorted(int(key) for key in children if key.isdecimal() and key.isascii() and len(key) <= digits)
    if children and len(numbers) == len(children) and numbers == list(range(len(children))):
        try:
            return [children[str(number)] for number in numbers]
        except KeyError:  # such as 00
            return children
    return children
