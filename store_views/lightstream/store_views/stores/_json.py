"""What callers hand over, as the JSON text that the log keeps, and back."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python
from pydantic_core import from_json as quick_from_json

from lightstream.schemas.errors import StoreError

from ._json_depth import check_depth, too_deep

__all__ = ["encoded", "from_json", "to_json"]

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
    """As :func:`to_json`, for what is only the wrapping of such values: it may be nested some levels deeper.

    Raises:
        StoreError: JSON cannot say it.
    """
    try:
        text = _encoder.encode(value)
        text.encode()  # a lone surrogate is not text
    except RecursionError as error:
        raise too_deep(what) from error
    except (TypeError, ValueError, PydanticSerializationError) as error:
        if "depth exceeded" in str(error):  # as pydantic says of a model
            raise too_deep(what) from error
        raise StoreError(f"{what} cannot be kept as JSON: {error}") from error
    return text


def from_json(text: str) -> Any:
    """What ``text`` says.

    Raises:
        ValueError: it is not valid JSON.
    """
    try:
        return quick_from_json(text)  # a fifth of the time
    except ValueError:  # as it says of text nested over 200 deep, or with half a surrogate pair
        return json.loads(text)
