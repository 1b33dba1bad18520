"""A long text, shortened: the beginning of an error says that it happened, and a traceback's end where."""

from __future__ import annotations

MARK = "\n[…]\n"
BEGINNING_SHARE = 1 / 3


def both_ends(text: str, characters_max: int) -> str:
    """``text``, or its beginning and its end with a mark between: ``characters_max`` in all."""
    if len(text) <= characters_max:
        return text
    kept = characters_max - len(MARK)
    beginning = int(kept * BEGINNING_SHARE)
    return text[:beginning] + MARK + text[beginning - kept :]
