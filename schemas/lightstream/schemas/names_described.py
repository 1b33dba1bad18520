"""Reads a list of names and what they mean, as the ``Attributes:`` section of a docstring has it."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["names_described"]

_ENTRY = re.compile(r"(?P<indent> *)(?P<names>\w+(?:, \w+)*): (?P<meaning>.+)")


def names_described(lines: Iterable[str]) -> dict[str, str]:
    """Name -> meaning of lines such as ``key: what the record key is.``

    A line that is indented further than an entry goes on with it; the list ends at the first line that does neither.
    """
    meanings: dict[str, str] = {}
    indent, names = -1, list[str]()
    for line in lines:
        depth = len(line) - len(line.lstrip())
        entry = _ENTRY.fullmatch(line.rstrip())
        if names and line.strip() and depth > indent:
            meanings |= {name: f"{meanings[name]} {line.strip()}" for name in names}
        elif entry is not None and indent in (-1, depth):
            indent, names = depth, entry["names"].split(", ")
            meanings |= dict.fromkeys(names, entry["meaning"])
        else:
            break
    return meanings
