"""Text from growing lists of tokens, where a token is a byte: the hardest case."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from lightstream.trainers.servers.chat_api.text import StopWatcher, TextStream


def _decode(token_ids: Sequence[int]) -> str:
    return bytes(token_ids).decode("utf-8", errors="replace")


@given(st.text(), st.lists(st.integers(1, 5)))
def test_pieces_make_up_the_whole_text_and_never_hold_half_a_character(text: str, steps: list[int]) -> None:
    tokens, stream, pieces, position = list(text.encode()), TextStream(_decode), list[str](), 0
    for step in [*steps, len(tokens)]:
        position = min(position + step, len(tokens))
        pieces.append(stream.take(tokens[:position]))
    pieces.append(stream.take(tokens, last=True))
    assert "".join(pieces) == text
    assert "\ufffd" in text or not any("\ufffd" in piece for piece in pieces)


@given(st.binary(max_size=200))
def test_broken_text_is_let_go_at_the_latest_when_it_ends(data: bytes) -> None:
    stream, said = TextStream(_decode), ""
    for end in range(1, len(data) + 1):
        said += stream.take(data[:end])
    said += stream.take(data, last=True)
    assert said.replace("\ufffd", "") == _decode(data).replace("\ufffd", "")


@given(st.text(alphabet="ab", max_size=30), st.lists(st.text(alphabet="ab", min_size=1, max_size=3), min_size=1))
def test_the_first_stop_text_is_found_as_soon_as_it_is_complete(text: str, stops: list[str]) -> None:
    tokens, watcher = list(text.encode()), StopWatcher(tuple(stops), _decode)
    for end in range(1, len(tokens) + 1):
        found = watcher.find(tokens[:end])
        expected = min((i for i in (text[:end].find(s) for s in stops) if i >= 0), default=None)
        assert found == expected
        if found is not None:
            return
