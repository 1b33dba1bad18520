"""One LLM call as training data, as Agent Lightning's algorithms take it."""

from __future__ import annotations

from typing import Any

from .json_model import JsonModel

__all__ = ["Triplet"]


class Triplet(JsonModel):
    """A turn of a trajectory: what was asked, what was answered, its reward (``None``: unknown).

    Adapters fill ``prompt`` and ``response`` with dictionaries whose ``token_ids`` are lists of integers.
    """

    prompt: Any
    response: Any
    reward: float | None = None
    metadata: dict[str, Any] = {}
