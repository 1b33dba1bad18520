"""A turn of a trajectory, as adapters make it of spans."""

from __future__ import annotations

from typing import Any

from .base import JsonModel


class Triplet(JsonModel):
    """A turn of a trajectory: question, answer and reward (``None``: unknown).

    Adapters fill ``prompt`` and ``response`` with dictionaries whose ``token_ids`` are lists of integers.
    """

    prompt: Any
    response: Any
    reward: float | None = None
    metadata: dict[str, Any] = {}
