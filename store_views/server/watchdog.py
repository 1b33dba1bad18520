"""Ends the process where a statement cannot be ended, and remembers the statement for the process that comes after.

DuckDB looks at its interrupt and its memory limit between blocks of rows: one call of a function may run for hours, or
take all memory of the machine. The supervisor starts the view again within seconds, and nothing is lost: what was not
yet in the file is in the log.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from lightstream.runtime.clock import NANOS_PER_SECOND, Clock, SystemClock
from lightstream.runtime.files import write_text
from lightstream.runtime.processes import RESTART_STATUS
from lightstream.schemas.errors import QueryError

from ..materialiser.view_file import default_memory_bytes
from .statement import Parameters, Statement

logger = logging.getLogger(__name__)

REFUSED_S = 600.0
"""For so long a statement is not run again that has ended the process: clients repeat what got no answer."""

REFUSED_MAX = 100

ROOM_BESIDE_DUCKDB_BYTES = 3 * 1024**3
"""Batches on their way in (1 GB), and answers under way."""

LOOK_INTERVAL_S = 0.05

ALSO_IGNORED_S = 1.0
"""A statement that has run on for so long, when another ends the process, would end the next one too, so it is refused
as well."""

GROWTH_SHARE_MIN = 0.5
"""A statement is blamed, if memory runs out, during which it grew by at least this share of the most."""

_CONSTANTS = (duckdb.token_type.string_const, duckdb.token_type.numeric_const)

_STATM = "/proc/self/statm"


def refused_path(path: Path) -> Path:
    """Return the file with the statements that are not run again, beside the view's."""
    return path.with_name(path.name + ".refused")


@dataclass(frozen=True, slots=True)
class _Watched:
    """The fingerprint of a statement, and the process's memory when it began."""

    fingerprint: str
    memory_bytes: int


class Watchdog:
    """Watches the statements of one process. On any thread.

    Args:
        path: of the view's file.
        memory_bytes_max: of the whole process; ``None`` for DuckDB's limit and 3 GiB.
        duckdb_bytes_max: DuckDB's limit; ``None`` for its default.
        end: ends the process; tests have another.
        memory_bytes: memory of the process now.
    """

    def __init__(
        self,
        path: Path,
        *,
        memory_bytes_max: int | None = None,
        duckdb_bytes_max: int | None = None,
        clock: Clock | None = None,
        end: Callable[[], None] | None = None,
        memory_bytes: Callable[[], int] | None = None,
    ) -> None:
        self._path = refused_path(path)
        self._limit = memory_bytes_max or (duckdb_bytes_max or default_memory_bytes()) + ROOM_BESIDE_DUCKDB_BYTES
        self._clock = clock or SystemClock()
        self._end = end or _end_process
        self._memory_bytes = memory_bytes or _resident_bytes
        self._ending = threading.Lock()
        self._changed = threading.Condition()
        self._watched: dict[Statement, _Watched] = {}
        self._refused = self._read()
        threading.Thread(target=self._look, daemon=True, name="lightstream-view-watchdog").start()

    @contextmanager
    def watched(self, statement: Statement, parameters: Parameters | None) -> Generator[None]:
        """Watch a statement while the block runs.

        Raises:
            QueryError: it has ended the process within the last ten minutes.
        """
        fingerprint = _fingerprint(statement, parameters)
        until_s = self._refused.get(fingerprint)
        if until_s is not None and (left_s := until_s - self._clock.now_unix_nano() / NANOS_PER_SECOND) > 0:
            raise QueryError(
                f"this statement has ended the view a while ago, and is refused for another {left_s:.0f} s.",
                next_step="Write it in another way, or run it in a view of its own: `lightstream view --name bi`.",
            )
        began = _Watched(fingerprint, self._memory_bytes())
        with self._changed:
            self._watched[statement] = began
            self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                del self._watched[statement]

    def on_ignored(self, statement: Statement) -> None:
        """End the process: the statement does not stop."""
        with self._changed:
            others = [one for one in self._watched if one is not statement and one.ignored_for_s > ALSO_IGNORED_S]
        self._end_for([statement, *others], "it does not stop, though told to for 2 s")

    def _look(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._watched))
                watched = dict(self._watched)
            used = self._memory_bytes()
            if used > self._limit:
                why = f"the process has {used >> 20:,} MiB, and {self._limit >> 20:,} are allowed"
                self._end_for(_blamed(watched, used), why)
            time.sleep(LOOK_INTERVAL_S)

    def _end_for(self, statements: Sequence[Statement], why: str) -> None:
        with self._ending:
            until_s = self._clock.now_unix_nano() / NANOS_PER_SECOND + REFUSED_S
            with self._changed:
                fingerprints = [self._watched[one].fingerprint for one in statements if one in self._watched]
            if not fingerprints:
                return  # it has ended after all
            self._refused |= dict.fromkeys(fingerprints, until_s)
            try:
                write_text(self._path, json.dumps(dict(list(self._refused.items())[-REFUSED_MAX:])))
            except OSError as error:
                logger.error("the statement may come again: %s cannot be written: %s", self._path, error)
            for one in statements:
                logger.error("the view ends, to be started again: %s. The statement was: %.500s", why, one.sql)
            self._end()

    def _read(self) -> dict[str, float]:
        now_s = self._clock.now_unix_nano() / NANOS_PER_SECOND
        try:
            found: Any = json.loads(self._path.read_text("utf-8"))
            return {str(key): float(until_s) for key, until_s in found.items() if float(until_s) > now_s}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}  # none, or not ours


def _blamed(watched: Mapping[Statement, _Watched], used: int) -> list[Statement]:
    """Return the statements during which memory grew most. Training's count only where no others run."""
    able = {one: began for one, began in watched.items() if one.lane != "stores"} or watched
    growth = {one: used - began.memory_bytes for one, began in able.items()}
    least = GROWTH_SHARE_MIN * max(growth.values(), default=0)
    return [one for one, grew in growth.items() if grew >= least] or list(able)


def _fingerprint(statement: Statement, parameters: Parameters | None) -> str:
    """Of one of people's, its shape: with another constant, comment or space it would end the process as well.

    Training and pages send few shapes, each with values of its own, so theirs are told apart by these.
    """
    if statement.lane == "others":
        text = _shape(statement.sql)
    else:
        text = json.dumps([" ".join(statement.sql.split()), parameters], default=str)
    return hashlib.sha256(text.encode("utf-8", errors="replace")).hexdigest()


def _shape(sql: str) -> str:
    """The words of a statement, with ``?`` for each constant, and without comments."""
    tokens = duckdb.tokenize(sql)
    ends = [*(start for start, _ in tokens[1:]), len(sql)]
    words = ((kind, sql[start:end].strip().lower()) for (start, kind), end in zip(tokens, ends, strict=True))
    return " ".join("?" if kind in _CONSTANTS else word for kind, word in words if kind != duckdb.token_type.comment)


def _resident_bytes() -> int:
    with open(_STATM, "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _end_process() -> None:
    logging.shutdown()
    os._exit(RESTART_STATUS)
