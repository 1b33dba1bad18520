"""Images in a recorded chat request, as they were sent, and content that no trainer can show again."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from ._read_call import is_list, is_map, parse_json

IMAGE_URL = "image_url"
DATA_URL = "data:"
BASE64 = ";base64"
ADDRESS_CHARS_MAX = 100
"""Of an address that is quoted."""


def images_of_request(request_json: str | None) -> tuple[tuple[bytes, ...], str]:
    """The files of the images that a request shows, in the order of its messages, and content that cannot be shown
    again.

    That is sound, video or a file: anything beside text and images. Only data URLs hold an image; whether it is
    an image that can be read is for the trainer to say.
    """
    if request_json is None or not _PARTS.search(request_json):
        return (), ""
    images: list[bytes] = []
    request = parse_json(request_json)
    other = next(_others(request), None)
    if other is not None:
        return (), other
    for url in _urls(request):
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


_TEXTS = frozenset({"text", "input_text", "output_text", "refusal", "thinking", "reasoning"})
"""Types of parts that a chat template writes as text, or leaves out."""

_PARTS = re.compile(r'"(?:content"\s*:\s*\[|audio"\s*:\s*\{)')
"""What a request with parts has: of others nothing needs to be read."""


def _others(request: object) -> Iterator[str]:
    messages = request.get("messages") if is_map(request) else None
    for number, message in enumerate(messages if is_list(messages) else ()):
        content = message.get("content") if is_map(message) else None
        for place, part in enumerate(content if is_list(content) else ()):
            if not is_map(part) or IMAGE_URL in part:
                continue
            kind = part.get("type", "text" if "text" in part else None)
            if kind not in _TEXTS:
                yield f"part {place} of message {number} is {kind!r}, which the trainer cannot show the model"
        if is_map(message) and is_map(message.get("audio")):
            yield f"message {number} is 'audio', which the trainer cannot show the model"


def _urls(request: object) -> Iterator[str]:
    messages = request.get("messages") if is_map(request) else None
    for message in messages if is_list(messages) else ():
        content = message.get("content") if is_map(message) else None
        for part in content if is_list(content) else ():
            if is_map(part) and IMAGE_URL in part:
                image = part[IMAGE_URL]
                yield str(image.get("url", "") if is_map(image) else image)
