"""How deep JSON may be nested: every parser and encoder on its way has a limit of its own, and fails there."""

from __future__ import annotations

import re
from itertools import accumulate

from lightstream.schemas.errors import StoreError

__all__ = ["JSON_DEPTH_MAX", "check_depth", "is_too_deep", "too_deep"]

JSON_DEPTH_MAX = 150
"""Requests and answers over HTTP, which put some levels around it, are parsed down to 200 and encoded down to 250."""

_STRINGS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NO_BRACKETS = re.compile(r"[^][{}]+")
_STEPS = {"[": 1, "{": 1, "]": -1, "}": -1}


def check_depth(what: str, text: str) -> None:
    """The JSON in ``text`` can be sent and read wherever it goes; ``what`` names it in the error.

    Raises:
        StoreError: lists and objects are nested too deeply in it.
    """
    if is_too_deep(text):
        raise too_deep(what)


def is_too_deep(text: str) -> bool:
    """Whether the JSON in ``text`` is nested more than :data:`JSON_DEPTH_MAX` deep."""
    may_be = text.count("[") + text.count("{") > JSON_DEPTH_MAX
    return may_be and _depth(text) > JSON_DEPTH_MAX


def too_deep(what: str) -> StoreError:
    """The error that says so of ``what``."""
    return StoreError(f"{what} has lists and objects nested more than {JSON_DEPTH_MAX} deep, which is not possible")


def _depth(text: str) -> int:
    brackets = _NO_BRACKETS.sub("", _STRINGS.sub("", text))
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)
