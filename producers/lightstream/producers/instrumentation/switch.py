"""Instrumentors, switched on and off."""

from __future__ import annotations

import importlib.util
import logging
import threading
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from opentelemetry.sdk.trace import TracerProvider

from lightstream.schemas.errors import SettingsError

from ..tracer.provider import install
from .registry import INSTRUMENTORS, Instrumentor

__all__ = ["instrument", "instrumented", "uninstrument"]

logger = logging.getLogger(__name__)

_lock = threading.Lock()
_running: dict[str, Any] = {}


def instrument(names: Iterable[str] | None = None, *, provider: TracerProvider | None = None) -> list[str]:
    """Let the calls of these libraries become spans. What is instrumented already stays as it is.

    Args:
        names: of :data:`INSTRUMENTORS`; by default all whose library and instrumentor are installed.
        provider: where the spans go; by default the process's, from which tracers take them.

    Returns:
        What is instrumented now, by this call or before, sorted.

    Raises:
        SettingsError: there is no instrumentor of that name, its package is not installed, or it does not take the
            installed version of its library. Those before it in ``names`` stay on.
    """
    provider = provider or install()[0]
    with _lock:
        if names is None:
            for each in INSTRUMENTORS.values():
                if each.name not in _running and _found(each.library) and _found(each.module):
                    _start_if_possible(each, provider)
        else:
            for name in names:
                if name not in _running:
                    _start(_named(name), provider)
        return sorted(_running)


def uninstrument(names: Iterable[str] | None = None) -> None:
    """Undo :func:`instrument`, for these or for all. What is not instrumented is left as it is.

    Raises:
        SettingsError: there is no instrumentor of that name.
    """
    with _lock:
        for name in list(_running) if names is None else list(names):
            running = _running.pop(_named(name).name, None)
            if running is not None:
                running.uninstrument()


def instrumented() -> list[str]:
    """What is instrumented now, sorted."""
    with _lock:
        return sorted(_running)


def _named(name: str) -> Instrumentor:
    if name not in INSTRUMENTORS:
        raise SettingsError(
            f"there is no instrumentor {name!r}.", next_step=f"Use one of {', '.join(sorted(INSTRUMENTORS))}."
        )
    return INSTRUMENTORS[name]


def _start(each: Instrumentor, provider: TracerProvider) -> None:
    if not _found(each.module):
        raise SettingsError(
            f"{each.name} is instrumented by {each.package}, which is not installed.",
            next_step=f"pip install {each.package}, or lightstream[instrument] for all of them.",
        )
    made = getattr(import_module(each.module), each.class_name)()
    if made.is_instrumented_by_opentelemetry:  # by somebody else: `opentelemetry-instrument`, the application
        logger.info("%s was instrumented before; it stays as it is.", each.name)
        return
    made.instrument(tracer_provider=provider, raise_exception_on_conflict=True)
    _running[each.name] = made


def _start_if_possible(each: Instrumentor, provider: TracerProvider) -> None:
    """One library whose version its instrumentor does not take must not keep the others from being seen."""
    try:
        _start(each, provider)
    except Exception as error:  # noqa: BLE001  # of other libraries, of any kind; told below
        logger.warning("%s is not instrumented: %s: %s", each.name, type(error).__name__, error)


def _found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a parent package
        return False
