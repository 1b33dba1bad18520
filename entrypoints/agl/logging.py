"""Logging of Lightstream's own loggers; nobody else's are changed unless they are named."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.logging import RichHandler

__all__ = [
    "DATE_FORMAT",
    "DEFAULT_FORMAT",
    "configure_logger",
    "setup",
    "setup_logging",
    "setup_module",
    "setup_module_logging",
]

DEFAULT_FORMAT = "%(asctime)s [%(levelname)s] (Process-%(process)d %(name)s)   %(message)s"
DATE_FORMAT = "%H:%M:%S"

BASE = "lightstream"
ELSEWHERE = "agentlightning"
"""Loggers of this name in a program that was written for Agent Lightning 0.3 mean ours."""

WIDTH_WITHOUT_TERMINAL = 200
"""Columns of a log file: enough for a message in one line."""


def setup_module(
    level: int | str = "INFO",
    *,
    name: str = BASE,
    console: bool = True,
    color: bool | Mapping[str, Any] = True,
    propagate: bool = False,
    disable_existing_loggers: bool = False,
) -> logging.Logger:
    """Give one logger, and all beneath it, a level and a handler; its earlier ones are taken away.

    Args:
        console: whether to write to the terminal at all.
        color: by rich; a mapping holds arguments of its handler. Otherwise plain lines on standard error.
        propagate: whether records go on to the loggers above.
        disable_existing_loggers: whether other loggers that exist fall silent.
    """
    logger = logging.getLogger(_ours(name))
    if disable_existing_loggers:
        for other in logging.Logger.manager.loggerDict.values():
            if isinstance(other, logging.Logger) and not f"{other.name}.".startswith(f"{logger.name}."):
                other.disabled = True
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
    logger.setLevel(level)
    logger.propagate = propagate
    if console:
        logger.addHandler(_console_handler(color, level))
    return logger


def setup(
    level: int | str = "INFO",
    *,
    console: bool = True,
    color: bool | Mapping[str, Any] = True,
    propagate: bool = False,
    disable_existing_loggers: bool = False,
    capture_warnings: bool = False,
    submodule_levels: Mapping[str, int | str] | None = None,
    extra_handlers: Sequence[logging.Handler] | None = None,
    formatter: logging.Formatter | None = None,
    apply_to: Sequence[str] | None = None,
    files: str | Mapping[str, str] | None = None,
) -> None:
    """Let Lightstream's loggers speak. May be called again.

    Args:
        level, console, color, propagate, disable_existing_loggers: of the logger ``lightstream``: :func:`setup_module`.
        capture_warnings: whether Python's warnings are logged.
        submodule_levels: logger -> level.
        extra_handlers: added to ``lightstream``.
        formatter: of its handlers that have none.
        apply_to: other loggers that get the same handlers and level, and no longer propagate.
        files: a file for all, or logger -> file; appended to.
    """
    base = setup_module(
        level, console=console, color=color, propagate=propagate, disable_existing_loggers=disable_existing_loggers
    )
    for handler in extra_handlers or ():
        if handler not in base.handlers:
            base.addHandler(handler)
    if formatter is not None:
        for handler in base.handlers:
            if handler.formatter is None or isinstance(handler, RichHandler):
                handler.setFormatter(formatter)
    for name, own_level in (submodule_levels or {}).items():
        logging.getLogger(_ours(name)).setLevel(own_level)
        for handler in base.handlers:
            handler.setLevel(min(handler.level, logging.getLogger(_ours(name)).level))
    for name, file in ({BASE: files} if isinstance(files, str) else files or {}).items():
        _add_file(logging.getLogger(_ours(name)), Path(file), formatter)
    for name in apply_to or ():
        other = logging.getLogger(name)
        other.handlers[:] = base.handlers
        other.setLevel(base.level)
        other.propagate = False
    if capture_warnings:
        logging.captureWarnings(True)


def configure_logger(level: int = logging.INFO, name: str = BASE) -> logging.Logger:
    """As :func:`setup_module`; deprecated there in favour of it."""
    warnings.warn("configure_logger is now setup_logging", DeprecationWarning, stacklevel=2)
    return setup_module(level, name=name)


setup_logging = setup
setup_module_logging = setup_module


def _ours(name: str) -> str:
    head, dot, rest = name.partition(".")
    return f"{BASE}{dot}{rest}" if head == ELSEWHERE else name


def _console_handler(color: bool | Mapping[str, Any], level: int | str) -> logging.Handler:
    if color is False:
        plain = logging.StreamHandler()
        plain.setFormatter(logging.Formatter(DEFAULT_FORMAT, DATE_FORMAT))
        plain.setLevel(level)
        return plain
    options: dict[str, Any] = {"rich_tracebacks": False, "markup": False}
    if isinstance(color, Mapping):
        options = dict(color)
    elif not sys.stdout.isatty():
        options["console"] = Console(width=WIDTH_WITHOUT_TERMINAL)
    return RichHandler(level=level, **options)


def _add_file(logger: logging.Logger, file: Path, formatter: logging.Formatter | None) -> None:
    path = str(file.resolve())
    if any(isinstance(handler, logging.FileHandler) and handler.baseFilename == path for handler in logger.handlers):
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(formatter or logging.Formatter(DEFAULT_FORMAT, DATE_FORMAT))
    handler.setLevel(logger.getEffectiveLevel())
    logger.addHandler(handler)
