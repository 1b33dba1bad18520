"""Traces of files, put together in little memory: the parts of each wait in a temporary file."""

from __future__ import annotations

import pickle
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from lightstream.schemas.types import Span

from .trace import ImportedTrace, merged

_TABLES = """
CREATE TABLE parts (place INTEGER PRIMARY KEY, trace_id TEXT, file INTEGER, is_ordered INTEGER, part BLOB);
CREATE TABLE scores (trace_id TEXT, span_id TEXT, name TEXT, value BLOB);
CREATE TABLE annotations (span_id TEXT, name TEXT, value BLOB);
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
"""
_INDEXES = """
CREATE INDEX parts_of ON parts (trace_id);
CREATE INDEX scores_of ON scores (trace_id);
CREATE INDEX annotations_of ON annotations (span_id);
"""


class Spool:
    """Takes parts of traces, then gives each trace once, in the order in which the first part of each came.

    It is a file of about the size of what is imported, in the system's folder for temporary files (``TMPDIR``).
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lightstream-import-")
        self._database = sqlite3.connect(Path(self._folder.name) / "spool.sqlite", isolation_level=None)
        self._database.executescript(_TABLES)
        self._database.execute("BEGIN")
        self._is_indexed = False
        self._deep: dict[int, tuple[Any, list[Span]]] = {}
        """Parts that are nested too deeply to be written, by their place."""

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add(self, trace_id: str, file: int, spans: Sequence[Span], *, is_ordered: bool, task: Any = None) -> None:
        """Take spans of a trace.

        Args:
            file: number of the file that they are from; a trace that is whole has one of its own. Spans that came twice
                from several count once.
            is_ordered: they came in the order in which they were written; else they are put into that of their ends.
        """
        part = (task, list(spans))
        try:
            written = pickle.dumps(part)
        except RecursionError:  # JSON goes deeper; such parts are few
            written = b""
        insert = "INSERT INTO parts (trace_id, file, is_ordered, part) VALUES (?, ?, ?, ?)"
        place = self._database.execute(insert, (trace_id, file, is_ordered, written)).lastrowid
        if not written and place is not None:
            self._deep[place] = part

    def add_scores(self, trace_id: str, scores: Mapping[str | None, Mapping[str, float]]) -> None:
        """Take scores: span (``None``: the whole trace) -> name -> value."""
        rows = [
            (trace_id, span, name, pickle.dumps(value))
            for span, values in scores.items()
            for name, value in values.items()
        ]
        self._database.executemany("INSERT INTO scores VALUES (?, ?, ?, ?)", rows)

    def add_annotation(self, span_id: str, name: str, value: float) -> None:
        """Take a score of a span whose trace it does not name."""
        self._database.execute("INSERT INTO annotations VALUES (?, ?, ?)", (span_id, name, pickle.dumps(value)))

    def score_names(self) -> list[str]:
        """The names of all scores."""
        rows = self._database.execute("SELECT name FROM scores UNION SELECT name FROM annotations ORDER BY 1")
        return [name for (name,) in rows]

    def orphan_scores(self) -> int:
        """How many scores are of traces that no file has."""
        self._index()
        (of_traces,) = self._database.execute(
            "SELECT count(*) FROM scores WHERE trace_id NOT IN (SELECT trace_id FROM parts)"
        ).fetchone()
        return int(of_traces)

    def __len__(self) -> int:
        """How many traces there are."""
        self._index()
        (count,) = self._database.execute("SELECT count(DISTINCT trace_id) FROM parts").fetchone()
        return int(count)

    def traces(self, chosen: str | None) -> Iterator[ImportedTrace]:
        """Each trace, with its scores as rewards.

        Args:
            chosen: see :meth:`ImportedTrace.add_scores`.

        Raises:
            SettingsError: a trace has scores of several names, and none is chosen.
        """
        self._index()
        ids = self._database.execute("SELECT trace_id FROM parts GROUP BY trace_id ORDER BY min(place)").fetchall()
        for (trace_id,) in ids:
            trace = self._trace(trace_id)
            scores = self._scores_of(trace)
            if scores:
                trace.add_scores(scores, chosen)
            yield trace

    def _trace(self, trace_id: str) -> ImportedTrace:
        rows = self._database.execute(
            "SELECT place, file, is_ordered, part FROM parts WHERE trace_id = ? ORDER BY place", (trace_id,)
        )
        by_file: dict[int, ImportedTrace] = {}
        unordered: set[int] = set()
        for place, file, is_ordered, part in rows:
            task, spans = self._deep[place] if not part else pickle.loads(part)  # noqa: S301  # our own file
            of_file = by_file.setdefault(file, ImportedTrace(trace_id))
            of_file.spans += spans
            of_file.task = task if of_file.task is None else of_file.task
            if not is_ordered:
                unordered.add(file)
        for file in unordered:
            by_file[file].spans.sort(key=lambda span: span.end_time or span.start_time or 0.0)
        return merged(list(by_file.values()))[0]

    def _scores_of(self, trace: ImportedTrace) -> dict[str | None, dict[str, float]]:
        scores: dict[str | None, dict[str, float]] = {}
        rows = self._database.execute(
            "SELECT span_id, name, value FROM scores WHERE trace_id = ? ORDER BY rowid", (trace.trace_id,)
        ).fetchall()
        for span in trace.spans:
            rows += self._database.execute(
                "SELECT span_id, name, value FROM annotations WHERE span_id = ? ORDER BY rowid", (span.span_id,)
            )
        for span_id, name, value in rows:
            scores.setdefault(span_id, {})[name] = pickle.loads(value)  # noqa: S301  # our own file
        return scores

    def _index(self) -> None:
        if not self._is_indexed:
            self._database.execute("COMMIT")
            self._database.executescript(_INDEXES)
            self._is_indexed = True

    def close(self) -> None:
        """Remove the file. Safe to call twice."""
        self._database.close()
        self._folder.cleanup()
