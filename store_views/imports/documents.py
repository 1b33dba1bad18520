"""The documents of a file, one after another, in little memory: JSON in any arrangement, Parquet; compressed or not."""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, cast

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.valid_text import valid_text

CHUNK_CHARS = 1024 * 1024
DOCUMENT_CHARS_MAX = 512 * 1024 * 1024
"""One document is held as a whole; the file may have any number of them."""
PARQUET_ROWS = 256
"""Read at a time."""

_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
_OTHERS = {
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
    b"PK\x03\x04": ("a zip archive", "unzip"),
    b"BZh": ("bzip2", "bunzip2"),
    b"\xfd7zXZ": ("xz", "unxz"),
}
"""First bytes of a file -> what it is, and the program that unpacks it."""

Progress = Callable[[int], None]
"""Is told how many bytes of the file were read so far."""


def documents_of(path: Path, progress: Progress = lambda _: None) -> Iterator[Any]:
    """The objects of a file, in its order: JSON documents or lists of them, or rows of Parquet.

    Documents come one after another (JSON lines, say). Lists may also lie below ``data``, ``resourceSpans`` or
    ``traces`` at the beginning of a document. A byte order mark is passed over, and gzip is unpacked. Lone surrogates
    become ``?``.

    Raises:
        SettingsError: the file is missing, or not of such a form; says in which line.
    """
    try:
        with ExitStack() as stack:
            raw = stack.enter_context(path.open("rb"))
            start = raw.read(8)
            raw.seek(0)
            if start.startswith(_PARQUET):
                yield from _rows(path, progress)
                return
            for magic, (what, program) in _OTHERS.items():
                if start.startswith(magic):
                    raise SettingsError(f"{path} is {what}.", next_step=f"Unpack it first, with `{program}`.")
            content: IO[bytes] = raw
            if start.startswith(_GZIP):
                content = cast("IO[bytes]", stack.enter_context(gzip.open(raw)))
                start = b""
            encoding = "utf-16" if start[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
            text = stack.enter_context(io.TextIOWrapper(content, encoding=encoding, newline=""))
            yield from _Scanner(path, text, lambda: progress(raw.tell())).documents()
            progress(path.stat().st_size)
    except (OSError, EOFError, UnicodeError, zlib.error) as error:
        raise SettingsError(f"{path} cannot be read: {error}.") from error


def _rows(path: Path, progress: Progress) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    size = path.stat().st_size
    try:
        with pq.ParquetFile(path) as file:
            rows, done = max(file.metadata.num_rows, 1), 0
            for batch in file.iter_batches(PARQUET_ROWS):
                yield from batch.to_pylist()
                done += batch.num_rows
                progress(size * done // rows)
    except pa.ArrowException as error:
        raise SettingsError(f"{path} cannot be read as Parquet: {error}.") from error


_SPACE = re.compile(r"[ \t\r\n]*")
_LIST_WITHIN = re.compile(r'\{\s*"(data|resourceSpans|resource_spans|traces)"\s*:\s*\[')
_PREFIX_CHARS = 256
"""Enough for the beginning of such a document."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""The beginning of a surrogate in JSON; most are one half of a pair, which is whole."""
_CUT_AT_THE_END = 32
"""Characters: what the parser finds wrong so close to the end of what was read may only be cut there."""


class _Scanner:
    """Reads text in chunks; holds the value that is being read, and what came with it."""

    def __init__(self, path: Path, text: IO[str], progress: Callable[[], None]) -> None:
        self._path = path
        self._text = text
        self._progress = progress
        self._buffer = ""
        self._at = 0
        self._lines_before = 0
        self._ended = False
        self._decoder = json.JSONDecoder()

    def documents(self) -> Iterator[Any]:
        while first := self._peek():
            if first == "[":
                self._at += 1
                yield from self._items()
            elif first == "{" and (found := self._list_within()) is not None:
                self._at = found.end()
                name, any_item = found[1], False
                for item in self._items():
                    any_item = True
                    yield item if name in ("data", "traces") else {name: [item]}
                if not any_item and name not in ("data", "traces"):
                    yield {name: []}
                self._skip_rest()
            else:
                yield self._value()

    def _list_within(self) -> re.Match[str] | None:
        while len(self._buffer) - self._at < _PREFIX_CHARS and not self._ended:
            self._more()
        return _LIST_WITHIN.match(self._buffer, self._at)

    def _items(self) -> Iterator[Any]:
        """Up to the end of a list whose beginning was read."""
        if self._peek() == "]":
            self._at += 1
            return
        while True:
            yield self._value()
            if self._take("],") == "]":
                return

    def _skip_rest(self) -> None:
        """Up to the end of an object of which one value was read."""
        while self._take("},") == ",":
            self._value()
            self._take(":")
            self._value()

    def _take(self, expected: str) -> str:
        found = self._peek()
        if not found or found not in expected:
            raise self._wrong(f"Expecting {' or '.join(map(repr, expected))}", self._at)
        self._at += 1
        return found

    def _peek(self) -> str:
        """The next character that is no space; empty at the end of the file."""
        while True:
            space = _SPACE.match(self._buffer, self._at)
            self._at = space.end() if space is not None else self._at
            if self._at < len(self._buffer) or self._ended:
                return self._buffer[self._at : self._at + 1]
            self._more()

    def _value(self) -> Any:
        self._peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._buffer, self._at)
            except ValueError as error:
                at = getattr(error, "pos", self._at)
                unended = str(error).startswith(("Unterminated string", "Invalid \\"))
                if self._ended or not (unended or at >= len(self._buffer) - _CUT_AT_THE_END):
                    raise self._wrong(getattr(error, "msg", str(error)), at) from error
            except RecursionError as error:
                raise self._wrong("nested too deeply", self._at) from error
            else:
                if end < len(self._buffer) or self._ended:  # else a number may go on
                    whole = self._buffer[self._at : end]
                    self._at = end
                    return valid_text(value) if _SURROGATE.search(whole) else value
            self._more()

    def _more(self) -> None:
        """Read on, and drop the values before. Doubles the buffer, so that a long value is parsed few times."""
        self._lines_before += self._buffer.count("\n", 0, self._at)
        self._buffer = self._buffer[self._at :]
        self._at = 0
        if len(self._buffer) > DOCUMENT_CHARS_MAX:
            raise SettingsError(
                f"the document at line {self._lines_before + 1} of {self._path} has over {DOCUMENT_CHARS_MAX:,} "
                "characters.",
                next_step="Write each trace as a document of its own, one a line.",
            )
        chunk = self._text.read(max(CHUNK_CHARS, len(self._buffer)))
        self._ended = not chunk
        self._buffer += chunk
        self._progress()

    def _wrong(self, what: str, at: int) -> SettingsError:
        line = self._lines_before + self._buffer.count("\n", 0, at) + 1
        column = at - (self._buffer.rfind("\n", 0, at) + 1) + 1
        return SettingsError(f"line {line} of {self._path} is not valid JSON: {what} (column {column}).")
