"""New ids: random, or, within :func:`repeatable`, the same ones whenever the same call is made again."""

from __future__ import annotations

import hashlib
import os
import random
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

# Not `uuid4`: it asks the operating system each time, giving up the interpreter's lock, and waits to have that back.
_chance = random.Random()  # noqa: S311  # an id, not a secret
os.register_at_fork(after_in_child=_chance.seed)  # else a child would go on with its parent's ids


class _Seed:
    """Ids by what they are for, and by how many of those came before."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._given: Counter[str] = Counter()

    def next(self, purpose: str) -> str:
        number = self._given[purpose]
        self._given[purpose] += 1
        return hashlib.sha256(f"{self._text}\0{purpose}\0{number}".encode("utf-8", "backslashreplace")).hexdigest()


_seed: ContextVar[_Seed | None] = ContextVar("lightstream_new_ids", default=None)


@contextmanager
def repeatable(seed: str) -> Generator[None]:
    """Within the block, and in tasks that are begun there, new ids follow from ``seed``.

    A write that may have been done before, by a process that was killed before it could say so, is thereby the same
    write: the log and its readers know it by its ids.
    """
    token = _seed.set(_Seed(seed))
    try:
        yield
    finally:
        _seed.reset(token)


def new_id(purpose: str, characters: int) -> str:
    """Up to 32 hexadecimal digits. ``purpose`` tells apart what one call needs ids for."""
    seed = _seed.get()
    digits = f"{_chance.getrandbits(128):032x}" if seed is None else seed.next(purpose)
    return digits[:characters]
