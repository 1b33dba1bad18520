"""Images of a recorded chat request, as they were sent: the trainer needs what the model saw."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

from ._read_call import is_list, is_map, parse_json

__all__ = ["images_of_request"]

IMAGE_URL = "image_url"
DATA_URL = "data:"
BASE64 = ";base64"
ADDRESS_CHARS_MAX = 100
"""Of an address that is quoted."""


def images_of_request(request_json: str | None) -> tuple[tuple[bytes, ...], str]:
    """The files of the images that a request shows, in the order of its messages; and what is wrong with one of them.

    Only data URLs hold a file. Whether it is an image that can be read is for the trainer to say.
    """
    if request_json is None or f'"{IMAGE_URL}"' not in request_json:
        return (), ""
    images: list[bytes] = []
    for url in _urls(parse_json(request_json)):
        head, comma, data = url.partition(",")
        if not head.startswith(DATA_URL):
            return (), f"the image at {url[:ADDRESS_CHARS_MAX]!r} is not part of the request"
        try:
            if not comma or not head.endswith(BASE64):
                raise binascii.Error("it is not base64")
            images.append(base64.b64decode("".join(data.split()), validate=True))
        except ValueError as error:
            return (), f"the data URL of image {len(images)} cannot be read: {error}"
    return tuple(images), ""


def _urls(request: object) -> Iterator[str]:
    messages = request.get("messages") if is_map(request) else None
    for message in messages if is_list(messages) else ():
        content = message.get("content") if is_map(message) else None
        for part in content if is_list(content) else ():
            if is_map(part) and IMAGE_URL in part:
                image = part[IMAGE_URL]
                yield str(image.get("url", "") if is_map(image) else image)
