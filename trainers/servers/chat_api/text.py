"""Tokens to text while they come, and stop texts. Pure, given a decoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Decode: TypeAlias = Callable[[Sequence[int]], str]

REPLACEMENT = "\ufffd"
PENDING_TOKENS_MAX = 16
"""A character has at most 4 bytes: after this many waiting tokens a long run of replacements is let go."""

BROKEN_RUN_MIN = 8
"""That many replacements in a row at the end are broken text, not the beginning of a character."""


def decoder(tokenizer: Any, end_ids: frozenset[int], *, reads_tool_calls: bool) -> Decode:
    """Return how answers become text: special tokens are left out. Some models mark their calls of tools with such:
    where calls are read, only those that end a turn are."""
    decode = tokenizer.backend_tokenizer.decode
    if not reads_tool_calls:
        return lambda ids: str(decode(list(ids), skip_special_tokens=True))
    return lambda ids: str(decode([token for token in ids if token not in end_ids], skip_special_tokens=False))


class TextStream:
    """Decodes a growing list of tokens piece by piece; never dispatches half a character."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._context_from = 0
        self._done_to = 0

    def take(self, token_ids: Sequence[int], *, last: bool = False) -> str:
        """The text that ``token_ids`` (all so far) add to the dispatched text; ``last`` lets everything go."""
        if self._done_to == len(token_ids):
            return ""
        before = self._decode(token_ids[self._context_from : self._done_to])
        now = self._decode(token_ids[self._context_from :])
        pending = len(token_ids) - self._done_to
        broken = len(now) - len(now.rstrip(REPLACEMENT))
        # Half a character decodes to one replacement; a long run of them will never become text.
        if broken and not last and (broken < BROKEN_RUN_MIN or pending < PENDING_TOKENS_MAX):
            return ""
        self._context_from, self._done_to = self._done_to, len(token_ids)
        return now[len(before) :]


class StopWatcher:
    """Looks for stop texts in the text of one generation."""

    def __init__(self, stops: tuple[str, ...], decode: Decode) -> None:
        self._stops = stops
        self._stream = TextStream(decode)
        self._length_max = max(map(len, stops))
        self._text = ""

    @property
    def held_back(self) -> int:
        """Characters at the end that may turn out to be the beginning of a stop text."""
        return self._length_max - 1

    def find(self, token_ids: Sequence[int]) -> int | None:
        """Position of the first stop text, once one is complete; call after every token."""
        new = self._stream.take(token_ids)
        if not new:
            return None
        search_from = max(0, len(self._text) - self.held_back)
        self._text += new
        found = [self._text.find(stop, search_from) for stop in self._stops]
        return min((index for index in found if index >= 0), default=None)
