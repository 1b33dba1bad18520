"""What callers hand over, as the JSON text that the log keeps, and back."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from lightstream.schemas.errors import StoreError

__all__ = ["from_json", "to_json"]


def to_json(what: str, value: Any) -> str:
    """``value`` as JSON. Models, data classes and the like become objects; ``what`` names it in the error.

    Raises:
        StoreError: JSON cannot say it.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, default=to_jsonable_python)
        text.encode()  # a lone surrogate is no text
    except (TypeError, ValueError, PydanticSerializationError, RecursionError) as error:
        raise StoreError(f"{what} cannot be kept as JSON: {error}") from error
    return text


def from_json(text: str) -> Any:
    """What ``text`` says."""
    return json.loads(text)
