"""The log file of a training, and errors that are one message on the console."""

from __future__ import annotations

import logging
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import Self

from lightstream.runtime.files import private_folder
from lightstream.runtime.logs import log_formatter
from lightstream.runtime.settings import Settings

logger = logging.getLogger(__name__)

LOG_BYTES_MAX = 10 * 1024 * 1024
"""A longer log is moved aside to ``<name>.log.1``."""

INTERRUPTED = 130
"""Exit status of a program that Ctrl-C ended: 128 and the signal's number."""


def log_path(settings: Settings, trainer_id: str) -> Path:
    """The log file of a trainer."""
    return settings.data_dir / "logs" / f"{trainer_id}.log"


class TrainingLog:
    """Sends Lightstream's log to a file, in place of the console, while the block runs. A context manager."""

    def __init__(self, settings: Settings, trainer_id: str, run_id: str) -> None:
        self._path = log_path(settings, trainer_id)
        self._formatter = log_formatter(settings, run_id=run_id)
        self._handler: logging.Handler | None = None
        self._propagates = logging.getLogger("lightstream").propagate

    def __enter__(self) -> Self:
        private_folder(self._path.parent)
        handler = RotatingFileHandler(self._path, maxBytes=LOG_BYTES_MAX, backupCount=1, encoding="utf-8")
        handler.setFormatter(self._formatter)
        ours = logging.getLogger("lightstream")
        ours.addHandler(handler)
        # Where the program has set up no logging, libraries do while they are imported: not for our lines.
        ours.propagate = ours.propagate and logging.getLogger().hasHandlers()
        self._handler = handler
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handler is not None:
            ours = logging.getLogger("lightstream")
            ours.removeHandler(self._handler)
            ours.propagate = self._propagates
            self._handler.close()

    def ends(self, error: BaseException, message: str) -> None:
        """The training ends with an error: the log has its traceback. If nobody catches it, the console shows
        ``message`` alone."""
        logger.error("the training ended", exc_info=error)
        before = sys.excepthook

        def show(kind: type[BaseException], raised: BaseException, trace: TracebackType | None) -> None:
            if raised is error:
                print(message, file=sys.stderr)
                if isinstance(raised, KeyboardInterrupt):
                    sys.exit(INTERRUPTED)
            else:
                before(kind, raised, trace)

        sys.excepthook = show
