"""Parts of a JSON document that must be there, or of one type; ``null`` counts as missing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

from lightstream.schemas.errors import SettingsError


def map_in(holder: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    """The object under ``key``; empty where there is none.

    Raises:
        SettingsError: it is no object.
    """
    value = holder.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise SettingsError(f"{key!r} of {where} is not an object: {_shown(value)}.")
    return cast("Mapping[str, Any]", value)


def list_in(holder: Mapping[str, Any], key: str, where: str) -> list[Any]:
    """The list under ``key``; empty where there is none.

    Raises:
        SettingsError: it is no list.
    """
    value = holder.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise SettingsError(f"{key!r} of {where} is not a list: {_shown(value)}.")
    items: list[Any] = value
    return items


def maps_in(holder: Mapping[str, Any], key: str, where: str) -> list[Mapping[str, Any]]:
    """The list of objects under ``key``; empty where there is none.

    Raises:
        SettingsError: it is no list, or one of its items is no object.
    """
    items = list_in(holder, key, where)
    for number, item in enumerate(items, start=1):
        if not isinstance(item, dict):
            raise SettingsError(f"item {number} of {key!r} of {where} is not an object: {_shown(item)}.")
    return items


def id_in(holder: Mapping[str, Any], key: str, where: str) -> Any:
    """The id under ``key``.

    Raises:
        SettingsError: there is none: things without an id would all be one.
    """
    value = holder.get(key)
    if value is None or value == "":
        raise SettingsError(f"{where} has no {key!r}.")
    return value


def as_float(value: float) -> float:
    """A number of JSON; a whole one that is too large is infinite, as JSON's ``1e999`` is."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _shown(value: object) -> str:
    return repr(value)[:100]
