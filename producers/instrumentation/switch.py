"""Instrumentors, switched on and off."""

from __future__ import annotations

import importlib.util
import logging
import sys
import threading
from collections.abc import Iterable, Mapping
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import wrapt
from opentelemetry.sdk.trace import TracerProvider

from lightstream.schemas.distribution import install_hint
from lightstream.schemas.errors import SettingsError

from ..tracer.provider import install
from .registry import INSTRUMENTORS, Instrumentor

logger = logging.getLogger(__name__)

ALL, NONE = "all", "none"
"""Values of ``LIGHTSTREAM_INSTRUMENT`` other than names."""

_lock = threading.Lock()
"""Of the three below. Never held during an import: imports have locks of their own, and call back here."""
_running: dict[str, Any] = {}
"""Name -> instrumentor; ``None`` while it is being started, and where somebody else had started it."""
_awaited: dict[str, TracerProvider] = {}
"""Those to be started once their library is imported."""
_hooked: set[str] = set()


def instrument(
    names: Iterable[str] | None = None,
    *,
    provider: TracerProvider | None = None,
    instead: Mapping[str, Instrumentor] | None = None,
) -> list[str]:
    """Turn the calls of these libraries into spans. Libraries already instrumented stay as they are.

    Args:
        names: of :data:`INSTRUMENTORS`; by default all whose library and instrumentor are installed, each once
            its library is imported, so that nothing is imported needlessly.
        provider: where the spans go; by default the process's, from which tracers take them.
        instead: name -> an instrumentor to use in place of the one in :data:`INSTRUMENTORS`.

    Returns:
        What is instrumented now or will be, by this call or before, sorted.

    Raises:
        SettingsError: there is no instrumentor of that name, or its package is not installed. Those before it in
            ``names`` stay on.
    """
    provider = provider or install()[0]
    if names is None:
        for each in (INSTRUMENTORS | dict(instead or {})).values():
            if _found(each.library) and _found(each.module):
                _await(each, provider)
    else:
        for name in names:
            _start((instead or {}).get(name) or _named(name), provider)
    return instrumented()


def instrument_as_asked(choice: bool | str | Iterable[str]) -> list[str]:
    """:func:`instrument`, for settings and arguments: ``True``, ``all``, ``False``, ``none``, or comma-separated names.

    Raises:
        SettingsError: as :func:`instrument`.
    """
    if isinstance(choice, str):
        choice = {ALL: True, NONE: False}.get(choice, [name.strip() for name in choice.split(",")])
    if isinstance(choice, bool):
        return instrument() if choice else instrumented()
    return instrument(choice)


def uninstrument(names: Iterable[str] | None = None) -> None:
    """Undo :func:`instrument`, for these or for all. Other libraries are left as they are.

    Raises:
        SettingsError: there is no instrumentor of that name.
    """
    for name in instrumented() if names is None else list(names):
        known = _named(name).name
        with _lock:
            _awaited.pop(known, None)
            running = _running.pop(known, None)
        if running is not None:
            running.uninstrument()


def instrumented() -> list[str]:
    """Libraries that are instrumented now, or will be once they are imported; sorted."""
    with _lock:
        return sorted({*_running, *_awaited})


def _named(name: str) -> Instrumentor:
    if name not in INSTRUMENTORS:
        raise SettingsError(
            f"there is no instrumentor {name!r}.", next_step=f"Use one of {', '.join(sorted(INSTRUMENTORS))}."
        )
    return INSTRUMENTORS[name]


def _await(each: Instrumentor, provider: TracerProvider) -> None:
    with _lock:
        if each.name in _running:
            return
        _awaited[each.name] = provider
        hook = each.name not in _hooked
        _hooked.add(each.name)
    if each.library in sys.modules:
        _imported(each)
    elif hook:
        wrapt.register_post_import_hook(partial(_imported, each), each.library)


def _imported(each: Instrumentor, _module: ModuleType | None = None) -> None:
    """A library version that its instrumentor does not support must not keep anything else from running."""
    with _lock:
        provider = _awaited.pop(each.name, None)
    if provider is None:
        return
    try:
        _start(each, provider)
    except Exception as error:  # noqa: BLE001  # of other libraries, of any kind; logged here
        logger.warning("%s is not instrumented: %s: %s", each.name, type(error).__name__, error)


def _start(each: Instrumentor, provider: TracerProvider) -> None:
    with _lock:
        if each.name in _running:
            return
        _running[each.name] = None
    try:
        instrumentor = _make(each)
        # By others: `opentelemetry-instrument`, the application.
        if instrumentor.is_instrumented_by_opentelemetry:
            logger.info("%s was instrumented before; it stays as it is.", each.name)
            return
        instrumentor.instrument(tracer_provider=provider, raise_exception_on_conflict=True)
    except BaseException:
        with _lock:
            _running.pop(each.name, None)
        raise
    with _lock:
        _running[each.name] = instrumentor


def _make(each: Instrumentor) -> Any:
    if not _found(each.module):
        raise SettingsError(
            f"{each.name} is instrumented by {each.package}, which is not installed.",
            next_step=f"Install it with `pip install {each.package}`, all of them with {install_hint('instrument')}.",
        )
    return getattr(import_module(each.module), each.class_name)()


def _found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a parent package
        return False
