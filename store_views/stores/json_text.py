"""Callers' values as the JSON text that the log keeps, and back.

How deep JSON may be nested is limited here: every parser and encoder on its way has a limit of its own.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python
from pydantic_core import from_json as quick_from_json

from lightstream.schemas.errors import StoreError

JSON_DEPTH_MAX = 150
"""Requests and answers over HTTP, which put some levels around it, are parsed down to 200 and encoded down to 250."""

_STRINGS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NO_BRACKETS = re.compile(r"[^][{}]+")
_STEPS = {"[": 1, "{": 1, "]": -1, "}": -1}

_encoder = json.JSONEncoder(ensure_ascii=False, default=to_jsonable_python)


def to_json(what: str, value: Any) -> str:
    """``value`` as JSON. Models, data classes and the like become objects; ``what`` names it in the error.

    Raises:
        StoreError: JSON cannot say it, or it is nested too deeply.
    """
    text = encoded(what, value)
    check_depth(what, text)
    return text


def encoded(what: str, value: Any) -> str:
    """As :func:`to_json`, for a wrapping of such values: it may be nested some levels deeper.

    Raises:
        StoreError: JSON cannot say it.
    """
    try:
        text = _encoder.encode(value)
        text.encode()  # a lone surrogate is not text
    except RecursionError as error:
        raise _too_deep(what) from error
    except (TypeError, ValueError, PydanticSerializationError) as error:
        if "depth exceeded" in str(error):  # as pydantic says of a model
            raise _too_deep(what) from error
        raise StoreError(f"{what} cannot be kept as JSON: {error}") from error
    return text


def from_json(text: str) -> Any:
    """The value of JSON text.

    Raises:
        ValueError: it is not valid JSON.
    """
    try:
        return quick_from_json(text)  # a fifth of the time
    except ValueError:  # as it says of text nested over 200 deep, or with half a surrogate pair
        return json.loads(text)


def check_depth(what: str, text: str) -> None:
    """The JSON in ``text`` can be sent and read wherever it goes; ``what`` names it in the error.

    Raises:
        StoreError: lists and objects are nested too deeply in it.
    """
    if is_too_deep(text):
        raise _too_deep(what)


def is_too_deep(text: str) -> bool:
    """Whether the JSON in ``text`` is nested more than :data:`JSON_DEPTH_MAX` deep."""
    may_be = text.count("[") + text.count("{") > JSON_DEPTH_MAX
    return may_be and _depth(text) > JSON_DEPTH_MAX


def _too_deep(what: str) -> StoreError:
    """The error that says so of ``what``."""
    return StoreError(f"{what} has lists and objects nested more than {JSON_DEPTH_MAX} deep, which is not possible")


def _depth(text: str) -> int:
    brackets = _NO_BRACKETS.sub("", _STRINGS.sub("", text))
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)
