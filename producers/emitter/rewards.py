"""Rewards."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, SupportsFloat, TypeVar, cast

from lightstream.schemas.types import SpanCoreFields

from .. import semconv
from ..attributes import make_link_attributes
from .messages import emit_annotation
from .operations import operation

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

PRIMARY = "primary"
"""Name of the only dimension of a plain reward."""


def emit_reward(
    reward: SupportsFloat | Mapping[str, SupportsFloat],
    *,
    primary_key: str | None = None,
    link: Mapping[str, str] | None = None,
    attributes: Mapping[str, Any] | None = None,
    propagate: bool = True,
) -> SpanCoreFields:
    """Reward the running attempt, or one call of it.

    NaN and infinities are sent as they are; the assembler keeps them out of training and says so.

    Args:
        reward: a number, or dimension -> number; the first dimension is what training uses.
        primary_key: which dimension comes first; needed when there are several.
        link: the call this is for: attribute -> value of its span, such as
            ``{"gen_ai.response.id": completion.id}``. Without it the reward is for the whole trajectory.
        attributes: further attributes.
        propagate: ``False`` makes the fields but sends nothing.

    Raises:
        TypeError: the reward is not a number.
        ValueError: a dimension is not a number, or there are several and ``primary_key`` names none of them, or there
            are none.
        NoActiveTracerError: no tracer is active, so the reward would be lost.
    """
    dimensions = [{"name": name, "value": value} for name, value in _dimensions(reward, primary_key)]
    extra = dict(attributes or {}) | (make_link_attributes(link) if link else {})
    return emit_annotation({semconv.AGL_REWARD: dimensions, **extra}, propagate=propagate)


def reward(fn: FunctionT) -> FunctionT:
    """``fn`` (synchronous or not) with its return value emitted as a reward; ``None`` emits nothing.

    Agent Lightning's older way; ``emit_reward`` is plainer. LLM calls that ``fn`` makes, a judge's, are
    not training data: they are below an operation ``agentlightning.reward``.

    Raises:
        NoActiveTracerError: no tracer is active (when the function is called).
    """
    if inspect.iscoroutinefunction(fn):

        @functools.wraps(fn)
        async def around_coroutine(*args: Any, **kwargs: Any) -> Any:
            with operation(name=semconv.AGL_REWARD):
                result = await fn(*args, **kwargs)
            if result is not None:
                emit_reward(result)
            return result

        return cast("FunctionT", around_coroutine)

    @functools.wraps(fn)
    def around(*args: Any, **kwargs: Any) -> Any:
        with operation(name=semconv.AGL_REWARD):
            result = fn(*args, **kwargs)
        if result is not None:
            emit_reward(result)
        return result

    return cast("FunctionT", around)


def _dimensions(
    reward: SupportsFloat | Mapping[str, SupportsFloat], primary_key: str | None
) -> list[tuple[str, float]]:
    if not isinstance(reward, Mapping):
        return [(primary_key or PRIMARY, _number(reward))]
    try:
        numbers = {name: _number(value) for name, value in reward.items()}
    except TypeError as error:
        raise ValueError(f"a dimension of {dict(reward)!r:.200}: {error}") from error
    if primary_key is None and len(numbers) == 1:
        return list(numbers.items())
    if primary_key is None or primary_key not in numbers:
        raise ValueError(f"primary_key is {primary_key!r}; it must name one of the dimensions {sorted(numbers)}")
    return [(primary_key, numbers.pop(primary_key)), *numbers.items()]


def _number(value: object) -> float:
    """As a float. Strings are refused: ``float("1")`` would hide a mistake."""
    wrong = f"a reward must be a number, not {type(value).__name__}: {value!r:.200}"
    if isinstance(value, (str, bytes)) or not isinstance(value, SupportsFloat):
        raise TypeError(wrong)
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:  # an array of several, an integer too large
        raise TypeError(wrong) from error
