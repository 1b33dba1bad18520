"""Finds the sequence that a prompt continues, in time linear in the prompt, however many sequences there are."""

from __future__ import annotations

from typing import Generic, TypeVar

from lightstream.schemas.packing import TOKEN_BYTES

__all__ = ["PrefixIndex"]

T = TypeVar("T")

BLOCK_BYTES = 64 * TOKEN_BYTES
"""Sequences are told apart by a chained hash per block; what is left over (under 64 tokens) is looked up as it is."""

_Scope = str | None


class PrefixIndex(Generic[T]):
    """Maps whole sequences (packed int32) to values; looks up the longest one that begins a given prompt."""

    def __init__(self) -> None:
        self._entries: dict[tuple[_Scope, int, int], dict[bytes, list[T]]] = {}

    def add(self, scope: _Scope, sequence: bytes, value: T) -> None:
        """Let prompts within ``scope`` that begin with all of ``sequence`` find ``value``."""
        blocks = len(sequence) // BLOCK_BYTES
        key = (scope, blocks, _chain(sequence, blocks)[-1])
        rest = sequence[blocks * BLOCK_BYTES :]
        self._entries.setdefault(key, {}).setdefault(rest, []).append(value)

    def take(self, scope: _Scope, prompt: bytes) -> T | None:
        """Remove and return the value of the longest sequence that begins ``prompt`` (the latest of equal ones)."""
        chain = _chain(prompt, len(prompt) // BLOCK_BYTES)
        for blocks in range(len(chain) - 1, -1, -1):
            entries = self._entries.get((scope, blocks, chain[blocks]))
            if not entries:
                continue
            start = blocks * BLOCK_BYTES
            longest = min(len(prompt) - start, BLOCK_BYTES - TOKEN_BYTES)
            for length in range(longest - longest % TOKEN_BYTES, -1, -TOKEN_BYTES):
                values = entries.get(prompt[start : start + length])
                if values:
                    return values.pop()
        return None


def _chain(sequence: bytes, blocks: int) -> list[int]:
    """Hash of the first 0, 1, … ``blocks`` blocks."""
    hashes = [0]
    for start in range(0, blocks * BLOCK_BYTES, BLOCK_BYTES):
        hashes.append(hash((hashes[-1], sequence[start : start + BLOCK_BYTES])))
    return hashes
