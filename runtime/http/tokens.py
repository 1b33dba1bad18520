"""A file of tokens: each with its rights and its end. It has digests, so whoever reads it learns no token."""

from __future__ import annotations

import hashlib
import logging
import re
import threading
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

from lightstream.schemas.errors import SettingsError

from ..clock import Clock, SystemClock

logger = logging.getLogger(__name__)

INGEST = "ingest"
"""Send spans, and call models through the proxy, which records the calls."""
READ = "read"
"""Read rollouts, spans, resources, workers, and what the view's pages show besides statements."""
SQL = "sql"
"""Ask the view for any statement, over HTTP and Flight SQL."""
CONTROL = "control"
"""Enqueue, dispatch, change and cancel rollouts; change resources and workers."""
FEEDBACK = "feedback"
"""Score rollouts, which later trainings learn from."""
SCOPES = (INGEST, READ, SQL, CONTROL, FEEDBACK)

NANOS_PER_SECOND = 1_000_000_000
SHA256 = re.compile(r"[0-9a-f]{64}")
HEADER = re.compile(r"\s*\[\[\s*token\s*\]\]")
FIELDS = ("name", "sha256", "scopes", "expires")


@dataclass(frozen=True, slots=True)
class _Token:
    name: str
    scopes: frozenset[str]
    expires_s: float | None

    def is_over(self, now_s: float) -> bool:
        return self.expires_s is not None and now_s >= self.expires_s


class TokensFile:
    """Tokens of a TOML file, read again when it changes. For any thread.

        [[token]]
        name = "collector of team A"
        sha256 = "…"               # of the token: printf %s "$TOKEN" | sha256sum
        scopes = ["ingest"]        # of ingest, read, sql, control, feedback
        expires = 2027-01-01       # optional: a day (its beginning in UTC) or a time

    A change that cannot be used is logged with its line, and what was there before holds.

    Raises:
        SettingsError: the file cannot be read or has a mistake; names the line.
    """

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self._path = path
        self._clock = clock or SystemClock()
        self._reading = threading.Lock()
        self._known_version: object = self._version()
        self._tokens = _read(path)

    def scopes_of(self, token: bytes) -> frozenset[str] | None:
        """The present rights of the bearer of this token; ``None`` for a token that is unknown or has expired."""
        self._read_again()
        found = self._tokens.get(hashlib.sha256(token).hexdigest())
        if found is None:
            return None
        now_s = self._clock.now_unix_nano() / NANOS_PER_SECOND
        return None if found.is_over(now_s) else found.scopes

    def expired(self) -> list[str]:
        """Names of the tokens that hold no longer."""
        self._read_again()
        now_s = self._clock.now_unix_nano() / NANOS_PER_SECOND
        return sorted(token.name for token in self._tokens.values() if token.is_over(now_s))

    def _read_again(self) -> None:
        with self._reading:
            version = self._version()
            if version == self._known_version:
                return
            self._known_version = version
            try:
                self._tokens = _read(self._path)
            except SettingsError as error:
                logger.error("%s The tokens of before hold.", error)
            else:
                logger.warning("%s was read again: %d tokens", self._path, len(self._tokens))

    def _version(self) -> object:
        try:
            found = self._path.stat()
        except OSError as error:
            return type(error)
        return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path) -> Mapping[str, _Token]:
    try:
        text = path.read_text("utf-8")
        document = tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise _mistake(path, None, f"it cannot be read: {error}") from error
    tables = document.pop("token", [])
    if document or not isinstance(tables, list):
        raise _mistake(path, None, f"it has {', '.join(map(repr, document)) or 'token'}; it may have [[token]] alone")
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines, 1) if HEADER.match(line)]
    tokens: dict[str, _Token] = {}
    for index, table in enumerate(tables):
        start = starts[index] if len(starts) == len(tables) else None
        digest, token = _token(path, table, start, lines)
        if digest in tokens:
            raise _mistake(path, _line_of("sha256", start, lines), f"{token.name!r} has the token of another name")
        tokens[digest] = token
    return tokens


def _token(path: Path, table: Any, start: int | None, lines: list[str]) -> tuple[str, _Token]:
    def mistake(field: str, problem: str) -> SettingsError:
        return _mistake(path, _line_of(field, start, lines), problem)

    if not isinstance(table, dict):
        raise mistake("token", "each token is a table, [[token]]")
    for field in table:
        if field not in FIELDS:
            raise mistake(field, f"{field!r} is no field of a token; {', '.join(FIELDS)} are")
    name, digest, scopes = table.get("name"), table.get("sha256"), table.get("scopes")
    if not isinstance(name, str) or not name:
        raise mistake("name", "a token needs a name")
    if not isinstance(digest, str) or not SHA256.fullmatch(digest):
        raise mistake("sha256", f"sha256 of {name!r} must be the 64 hexadecimal digits that `sha256sum` prints")
    if not isinstance(scopes, list) or not scopes:
        raise mistake("scopes", f"{name!r} needs scopes: a list of {', '.join(SCOPES)}")
    for scope in scopes:
        if scope not in SCOPES:
            raise mistake("scopes", f"{scope!r} of {name!r} is no scope; {', '.join(SCOPES)} are")
    try:
        expires_s = _seconds(table.get("expires"))
    except TypeError as error:
        raise mistake("expires", f"expires of {name!r} must be a day or a time, such as 2027-01-01") from error
    return digest, _Token(name, frozenset(scopes), expires_s)


def _seconds(expires: object) -> float | None:
    if expires is None:
        return None
    if isinstance(expires, datetime):
        return (expires if expires.tzinfo else expires.replace(tzinfo=UTC)).timestamp()
    if isinstance(expires, date):
        return datetime.combine(expires, time(), UTC).timestamp()
    raise TypeError(expires)


def _line_of(field: str, start: int | None, lines: Iterable[str]) -> int | None:
    """The line of a field in the table that begins at line ``start``, else that line itself."""
    if start is None:
        return None
    for number, line in enumerate(lines, 1):
        if number > start and HEADER.match(line):
            break
        if number > start and re.match(rf"\s*[\"']?{re.escape(field)}[\"']?\s*=", line):
            return number
    return start


def _mistake(path: Path, line: int | None, problem: str) -> SettingsError:
    place = str(path) if line is None else f"{path}, line {line}"
    return SettingsError(f"LIGHTSTREAM_TOKENS_FILE, {place}: {problem}.", next_step="Correct it and try again.")
