"""What a message says: text, or text and images as OpenAI's content parts, from the shapes it is recorded in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..dialects import is_list, is_map

__all__ = ["Content", "content_of", "text_of"]

Content = str | list[dict[str, Any]]
"""A message's ``content`` as OpenAI's API takes it: text, or parts where there is more than text."""

_TEXT = frozenset({"text", "input_text", "output_text"})
_IMAGE_BY_NAME = frozenset({"image", "image-url"})
_IMAGES = _IMAGE_BY_NAME | {"uri", "blob", "binary", "file"}
_IMAGE_VALUES = ("uri", "url", "content", "data", "image")
_MEDIA_TYPES = ("mime_type", "media_type", "mediaType", "mimeType")
_URL_BEGINS = ("http://", "https://", "data:")
_ANY_IMAGE = "image/png"
"""Media type of an image that names none: readers of data URLs look at the image itself."""


def content_of(value: object) -> Content:
    """Text as it is; of a list its texts joined, unless there are images among them. What is neither is left out."""
    if isinstance(value, str):
        return value
    parts = [part for item in value if (part := _part(item)) is not None] if is_list(value) else []
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def text_of(content: object) -> str:
    """The text of a message's content."""
    if isinstance(content, str):
        return content
    parts = [part.get("text") for part in content if is_map(part)] if is_list(content) else []
    return "".join(part for part in parts if isinstance(part, str))


def _part(value: object) -> dict[str, Any] | None:
    if isinstance(value, str):
        return {"type": "text", "text": value}
    if not is_map(value):
        return None
    kind = value.get("type", value.get("kind", "text"))
    if not isinstance(kind, str):
        return None
    if kind in _TEXT:
        text = value.get("content", value.get("text"))
        return {"type": "text", "text": text} if isinstance(text, str) else None
    if kind == "image_url":
        image = value.get("image_url")
        return {"type": kind, "image_url": dict(image) if is_map(image) else {"url": str(image)}}
    url = _image(kind, value) if kind in _IMAGES else None
    return None if url is None else {"type": "image_url", "image_url": {"url": url}}


def _image(kind: str, part: Mapping[str, Any]) -> str | None:
    """GenAI's ``uri`` and ``blob``, Pydantic AI's ``image-url`` and ``binary``, Vercel's ``image`` and ``file``."""
    media_type = _first(part, _MEDIA_TYPES) or ""
    value = _first(part, _IMAGE_VALUES)
    is_image = kind in _IMAGE_BY_NAME or part.get("modality") == "image" or media_type.startswith("image/")
    if value is None or not is_image:
        return None
    if kind in {"uri", "image-url"} or value.startswith(_URL_BEGINS):
        return value
    return f"data:{media_type or _ANY_IMAGE};base64,{value}"


def _first(part: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    found = (part.get(name) for name in names)
    return next((value for value in found if isinstance(value, str) and value), None)
