"""Rules as a user writes them, named by module and function."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lightstream.schemas.records import SpanRecord
from lightstream.stream_processors.core.credit import CreditStep

NOT_A_FUNCTION = 1


def by_position(steps: Sequence[CreditStep], trajectory: float | None) -> list[float | None]:
    return [None if trajectory is None else trajectory * (index + 1) for index, _ in enumerate(steps)]


def raises(steps: Sequence[CreditStep], trajectory: float | None) -> list[float | None]:
    raise RuntimeError("no idea")


def raises_odd_text(steps: Sequence[CreditStep], trajectory: float | None) -> list[float | None]:
    raise RuntimeError("cut \ud83d")


def too_few(steps: Sequence[CreditStep], trajectory: float | None) -> list[float | None]:
    return []


def not_finite(steps: Sequence[CreditStep], trajectory: float | None) -> list[float | None]:
    return [math.nan for _ in steps]


def long_answer(span: SpanRecord) -> float | None:
    """Less for a slow step; raises for spans it was not made for."""
    if span.name == "broken":
        raise KeyError("cost")
    if span.name == "odd":
        raise ValueError("cut \ud83d")
    cost = span.attributes.get("cost")
    return None if cost is None else -float(cost)
