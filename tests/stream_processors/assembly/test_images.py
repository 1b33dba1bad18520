"""Images of recorded requests: each once in the trajectory, and a reason where one is not in the request."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from lightstream.schemas.packing import unpack_int32
from lightstream.schemas.records import DropReason, SpanRecord
from lightstream.stream_processors.core.assembly import AssemblyRules
from lightstream.stream_processors.core.segments import SegmentStart, segments_of, transitions_of

from .build import assemble, proxy_span

RED, BLUE = b"\x89PNG red", b"\xff\xd8\xff blue"
PLACE = 151655


def data_url(image: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(image).decode('ascii')}"


def asked(*images: bytes | str) -> str:
    """A request whose messages show images, each in a message of its own; text: an address."""
    urls = [image if isinstance(image, str) else data_url(image) for image in images]
    parts: list[Any] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    messages = [{"role": "user", "content": [{"type": "text", "text": "what is it?"}, part]} for part in parts]
    return json.dumps({"model": "policy", "messages": [{"role": "system", "content": "look"}, *messages]})


def seen(number: int, prompt: list[int], response: list[int], *images: bytes | str, **call: Any) -> SpanRecord:
    return proxy_span(number, prompt, response, request_json=asked(*images), **call)


def test_each_image_is_kept_once_and_calls_name_it_in_the_order_of_their_prompt() -> None:
    trajectory = assemble(
        seen(1, [1, PLACE], [2], RED),
        seen(2, [1, PLACE, 2, 3, PLACE, PLACE], [4], RED, BLUE, RED),
        seen(3, [5, PLACE], [6], BLUE),
        proxy_span(4, [7], [8], request_json=json.dumps({"messages": [{"role": "user", "content": "image_url"}]})),
    )
    assert trajectory.images == [RED, BLUE]
    assert [triplet.images for triplet in trajectory.triplets] == [[0], [0, 1, 0], [1], []]
    first, second, third = segments_of(trajectory)
    assert (first.images, second.images, third.images) == ((0, 1, 0), (1,), ())
    assert [turn.images for turn in first.turns] == [1, 3]
    assert [segment.images for segment in transitions_of(trajectory)] == [(0,), (0, 1, 0), (1,), ()]


def test_the_same_tokens_behind_another_image_are_no_continuation() -> None:
    trajectory = assemble(
        seen(1, [1, PLACE], [2], RED),
        seen(2, [1, PLACE], [2], BLUE),
        seen(3, [1, PLACE, 2, 3], [4], RED),
        seen(4, [1, PLACE, 2, 3], [5], BLUE),
        seen(5, [1, PLACE, 2, 3, 5, 6], [7], RED),
    )
    segments = segments_of(trajectory)
    assert [unpack_int32(segment.token_ids).tolist() for segment in segments] == [
        [1, PLACE, 2, 3, 4],
        [1, PLACE, 2, 3, 5],
        [1, PLACE, 2, 3, 5, 6, 7],
    ]
    assert [trajectory.images[segment.images[0]] for segment in segments] == [RED, BLUE, RED]
    assert segments[2].start_reason is SegmentStart.EDITED_HISTORY, "as the image before it was another"


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ("https://example.org/cat.png", "the image at 'https://example.org/cat.png' is not part of the request"),
        ("file:///cat.png", "is not part of the request"),
        ("data:image/png;base64,====", "the data URL of image 1 cannot be read"),
        ("data:image/svg+xml,<svg/>", "it is not base64"),
        ("data:image/png;base64", "it is not base64"),
        ("", "the image at '' is not part of the request"),
    ],
)
def test_a_call_whose_image_is_not_in_its_request_is_dropped_and_says_so(image: str, said: str) -> None:
    trajectory = assemble(seen(1, [1, PLACE, PLACE], [2], RED, image), seen(2, [1, PLACE], [2], BLUE))
    (drop,) = trajectory.drops
    assert (drop.reason, drop.is_llm_call) == (DropReason.IMAGE_NOT_RECORDED, True)
    assert said in drop.detail
    assert [triplet.images for triplet in trajectory.triplets] == [[0]]
    assert trajectory.images == [BLUE], "nothing of a dropped call"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64,UklGRg=="}},
        {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA"}},
        {"type": "image_embeds", "image_embeds": "AAAA"},
        {"type": None},
    ],
)
def test_a_part_that_is_neither_text_nor_a_recorded_image_drops_the_call_and_is_named(part: dict[str, Any]) -> None:
    content = [{"type": "text", "text": "what?"}, part]
    request = {"messages": [{"role": "system", "content": "x"}, {"role": "user", "content": content}]}
    trajectory = assemble(proxy_span(1, [1, 2], [3], request_json=json.dumps(request)), proxy_span(2))
    (drop,) = trajectory.drops
    assert drop.reason == DropReason.IMAGE_NOT_RECORDED
    assert f"part 1 of message 1 is {part['type']!r}" in drop.detail
    assert len(trajectory.triplets) == 1


def test_the_sound_of_an_earlier_answer_drops_the_call_and_texts_in_parts_do_not() -> None:
    said = {"role": "assistant", "audio": {"id": "audio_1"}}
    texts = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}, "c"]}
    trajectory = assemble(
        proxy_span(1, [1, 2], [3], request_json=json.dumps({"messages": [said]})),
        proxy_span(2, [1, 2], [3], request_json=json.dumps({"messages": [texts]})),
    )
    assert [drop.detail for drop in trajectory.drops] == [
        "message 0 is 'audio', which the trainer cannot show the model"
    ]
    assert len(trajectory.triplets) == 1


def test_a_failed_call_says_why_it_failed() -> None:
    trajectory = assemble(seen(1, [1], [2], "https://example.org", http_status=400, error_message="no images here"))
    assert [drop.reason for drop in trajectory.drops] == [DropReason.CALL_FAILED]


def test_images_count_once_towards_the_limit_of_an_attempt() -> None:
    large = bytes(4000)
    rules = AssemblyRules(trajectory_bytes_max=6000)
    trajectory = assemble(*(seen(i, [i, PLACE], [2], large) for i in (1, 2, 3)), rules=rules)
    assert [triplet.images for triplet in trajectory.triplets] == [[0], [0], [0]]
    trajectory = assemble(*(seen(i, [i, PLACE], [2], large + bytes([i])) for i in (1, 2)), rules=rules)
    assert [len(image) for image in trajectory.images] == [4001]
    assert [drop.reason for drop in trajectory.drops] == [DropReason.TOO_LARGE]


def test_a_url_of_its_own_and_broken_lines_are_read_as_servers_read_them() -> None:
    wrapped = data_url(RED)[:30] + "\n" + data_url(RED)[30:]
    request = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": wrapped}, "x", 3]}, None]}
    trajectory = assemble(proxy_span(1, [1, PLACE], [2], request_json=json.dumps(request)))
    assert trajectory.images == [RED]
