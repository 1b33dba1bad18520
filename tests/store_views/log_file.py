"""A view's file filled without Kafka: records get offsets, and become rows as the materialiser makes them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from lightstream.schemas.records import AttemptClosed, AttemptOpened, Record, SpanRecord, Trajectory
from lightstream.schemas.topics import TOPICS, Topic
from lightstream.store_views.materialiser import ViewDatabase
from lightstream.store_views.materialiser.arrow_rows import LoggedRecord, arrow_table
from lightstream.store_views.tables import tables_of
from lightstream.stream_processors.core.assembly import Assembler, AssemblyRules

_ORIGIN = {"made by": "test"}
_TOPIC_OF: dict[type[Record], Topic] = {record: topic for topic in TOPICS for record in topic.records}


class LogFile:
    """One partition per topic, the assembler at work, and the file."""

    def __init__(self, path: Path, rules: AssemblyRules | None = None) -> None:
        self.database = open_view(path)
        self._next = {topic: end for (topic, _), end in self.database.next_offsets().items()}
        self._uncommitted: dict[type[Record], list[LoggedRecord]] = {}
        self._assembler = Assembler(partition=0, rules=rules)

    def write(self, *records: Record) -> None:
        """Log records and materialise them, in one transaction."""
        for record in records:
            self._log(record)
        self._commit()

    def write_and_assemble(self, *records: SpanRecord | AttemptOpened | AttemptClosed) -> list[Trajectory]:
        """Log records of ``spans``, let the assembler do its part, and materialise everything."""
        trajectories: list[Trajectory] = []
        for record in records:
            trajectories += self._assembler.on_record(record, self._log(record))
        trajectories += self._assembler.take_revisions()
        self.write(*trajectories)
        return trajectories

    def rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """The answer to a query."""
        return self.database.cursor().execute(sql, parameters).fetchall()

    def dicts(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """The answer to a query, by column name."""
        cursor = self.database.cursor().execute(sql, parameters)
        names = [column[0] for column in cursor.description or []]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def _log(self, record: Record) -> int:
        topic = _TOPIC_OF[type(record)].name
        offset = self._next.get(topic, 0)
        self._next[topic] = offset + 1
        self._uncommitted.setdefault(type(record), []).append(LoggedRecord(record, 0, offset, 1_000))
        return offset

    def _commit(self) -> None:
        tables = {
            table.name: arrow_table(table, logged)
            for record, logged in self._uncommitted.items()
            for table in tables_of(record)
        }
        self.database.append(tables, {(topic, 0): offset for topic, offset in self._next.items()})
        self._uncommitted = {}


def open_view(path: Path) -> ViewDatabase:
    """The view at a path; where there is none, a copy of an empty one, as its views take a second to make."""
    if not path.exists():
        shutil.copyfile(Path(_empty_view().name) / "empty.duckdb", path)
    return ViewDatabase(path, _ORIGIN)


@cache
def _empty_view() -> tempfile.TemporaryDirectory[str]:
    """A folder with ``empty.duckdb``; it is gone with this process."""
    folder = tempfile.TemporaryDirectory(prefix="lightstream-tests-")
    ViewDatabase(Path(folder.name) / "empty.duckdb", _ORIGIN).close()
    return folder


@contextmanager
def open_log_file(
    path: Path, records: Iterable[Record] = (), rules: AssemblyRules | None = None
) -> Generator[LogFile, None, None]:
    """A :class:`LogFile`, closed at the end."""
    log = LogFile(path, rules)
    try:
        log.write(*records)
        yield log
    finally:
        log.database.close()
