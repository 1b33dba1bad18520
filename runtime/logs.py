"""Log lines of a process on standard error: as text, or as JSON with the ids of their subject."""

from __future__ import annotations

import json
import logging
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from .settings import Settings

ID_FIELDS = ("run_id", "rollout_id", "attempt_id")
TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_ids: ContextVar[Mapping[str, str]] = ContextVar("lightstream_logged_ids", default=MappingProxyType({}))


def log_to_stderr(settings: Settings, level: int = logging.INFO) -> None:
    """One line per event; a supervisor keeps it in the process's log file. Replaces what was configured before."""
    handler = logging.StreamHandler()
    handler.setFormatter(log_formatter(settings))
    logging.basicConfig(level=level, handlers=[handler], force=True)


def log_formatter(settings: Settings, **ids: str) -> logging.Formatter:
    """Lines as the settings ask for them; JSON has these ids in each line, whatever thread it is of."""
    return _JsonLines(ids) if settings.log_format == "json" else logging.Formatter(TEXT)


@contextmanager
def logged_ids(**ids: str | None) -> Generator[None, None, None]:
    """Give each JSON line that is logged within these ids, beside the ids of outer blocks; empty ones are left out.

    Follows tasks and copied contexts.
    """
    token = _ids.set({**_ids.get(), **{name: value for name, value in ids.items() if value}})
    try:
        yield
    finally:
        _ids.reset(token)


def logged_ids_of(about: object) -> AbstractContextManager[None]:
    """The same with the ids of run, rollout and attempt that ``about``, or the rollout in it, has as attributes."""
    rollout = getattr(about, "rollout", None)
    return logged_ids(**{name: getattr(about, name, None) or getattr(rollout, name, None) for name in ID_FIELDS})


class _JsonLines(logging.Formatter):
    def __init__(self, of_all: Mapping[str, str]) -> None:
        super().__init__()
        self._of_all = dict(of_all)

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **self._of_all,
            **_ids.get(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
