"""The model that judges: asked once for the same question, at a bounded rate, within a budget, until it answers."""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import httpx

from lightstream.runtime.http.client import PAUSE_S_MAX, reason_of
from lightstream.schemas.errors import QueryError, SettingsError

from .prompts import UnreadableVerdictError

logger = logging.getLogger(__name__)

T = TypeVar("T")

PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Statuses after which the same request may be answered."""
REFUSED = frozenset({400, 413, 422})
"""Statuses by which a server refuses one question, such as one that is too long."""
INTERNAL_ERROR, ERRORS_MAX = 500, 10
"""A server may fail at one question for ever."""
TIMEOUT_S = 300.0
PAUSE_S = 0.5
PAUSE_S_LIMIT = 60.0
SECONDS_PER_MINUTE = 60.0
IDEMPOTENCY_HEADER = "idempotency-key"


class BudgetSpentError(QueryError):
    """The judge may not be asked again."""


class StoppedError(Exception):
    """The process ends while a judge is waited for."""


class JudgeModel:
    """An OpenAI-compatible model. For several threads.

    Answers are kept in a file by what was asked, so a judge that is started again asks nothing twice. A question that
    was under way when the process was killed is sent again with the same ``Idempotency-Key``: servers that know it do
    not bill it twice.

    Args:
        base_url: with ``/v1``.
        api_key: empty: none is sent.
        answers: SQLite file of the answers.
        per_minute: questions a minute at most; ``None``: as fast as they are answered.
        tokens_max: of all questions of this process; ``None``: no bound.
        stopping: set where waiting is to end.

    Attributes:
        questions, tokens: of this process; answers from the file count nothing.

    Raises:
        SettingsError: the file is none of answers.
    """

    def __init__(
        self,
        model: str,
        base_url: str,
        api_key: str,
        answers: Path,
        *,
        per_minute: float | None = None,
        tokens_max: int | None = None,
        stopping: threading.Event | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.model = model
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._pause_s = 0.0 if per_minute is None else SECONDS_PER_MINUTE / per_minute
        self._tokens_max = tokens_max
        self._stopping = stopping or threading.Event()
        self._now = now
        self._next_s = now()
        self._lock = threading.Lock()
        self.questions = self.tokens = 0
        answers.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._answers = sqlite3.connect(answers, check_same_thread=False, isolation_level=None, timeout=60)
            self._answers.execute("PRAGMA journal_mode=WAL")
            self._answers.execute(
                "CREATE TABLE IF NOT EXISTS answers (question TEXT PRIMARY KEY, answer TEXT NOT NULL)"
            )
        except sqlite3.DatabaseError as error:
            raise SettingsError(
                f"{answers} cannot be used for the judge's answers: {error}.", next_step="Move it away."
            ) from error
        self._http = httpx.Client(timeout=TIMEOUT_S)

    def ask(self, messages: Sequence[dict[str, str]], read: Callable[[str], T], *, number: int = 0) -> T:
        """The model's answer, as ``read`` makes it of its text. Waits while the model is away, or asks for a pause.

        Args:
            read: raises for a text that it cannot read, which is then not kept.
            number: another number is another question with the same words, for an answer that could not be read.

        Raises:
            BudgetSpentError: it would cost more than it may.
            UnreadableVerdictError: the server refuses this question, or fails at it again and again; or of ``read``.
            SettingsError: the server refuses every question; says with which words.
            StoppedError: the process ends.
        """
        if self._stopping.is_set():
            raise StoppedError
        body: dict[str, Any] = {"model": self.model, "messages": list(messages), "temperature": 0}
        body |= {"seed": number} if number else {}
        content = json.dumps(body).encode()
        question = blake2b(self._url.encode() + b"\0" + content, digest_size=16).hexdigest()
        with self._lock:
            row = self._answers.execute("SELECT answer FROM answers WHERE question = ?", (question,)).fetchone()
            if row is None and self._tokens_max is not None and self.tokens >= self._tokens_max:
                raise BudgetSpentError(
                    f"the judge has used {self.tokens:,} of {self._tokens_max:,} tokens.",
                    next_step="Start it again with more: finished scores stay.",
                )
        if row is not None:
            return read(row[0])
        text, tokens = self._answered(content, question)
        with self._lock:
            self.questions += 1
            self.tokens += tokens
        found = read(text)
        with self._lock:
            self._answers.execute("INSERT OR IGNORE INTO answers VALUES (?, ?)", (question, text))
        return found

    def close(self) -> None:
        """Close connections and the file."""
        self._http.close()
        self._answers.close()

    def _answered(self, content: bytes, question: str) -> tuple[str, int]:
        """Text and tokens of the answer; tries until there is one."""
        headers = self._headers | {"content-type": "application/json", IDEMPOTENCY_HEADER: question}
        pause_s, errors = PAUSE_S, 0
        while True:
            self._wait_for_turn()
            problem, asked_s = "", 0.0
            try:
                response = self._http.post(self._url, content=content, headers=headers)
            except httpx.TransportError as error:
                problem = f"does not answer: {reason_of(error)}"
            else:
                if response.status_code == 200:
                    return _read(response)
                problem = f"answers {response.status_code}: {response.text[:300]}"
                errors += response.status_code == INTERNAL_ERROR
                if response.status_code in REFUSED or errors == ERRORS_MAX:
                    raise UnreadableVerdictError(f"the judge {problem}")
                if response.status_code not in PASSING:
                    raise SettingsError(
                        f"the judge at {self._url} {problem}", next_step="Correct the model or its key."
                    )
                asked_s = _seconds(response.headers.get("retry-after", ""))
            wait_s = max(pause_s, asked_s)
            logger.warning("the judge at %s %s; it is asked again in %.0f s", self._url, problem, wait_s)
            self._wait(wait_s)
            pause_s = min(2 * pause_s, PAUSE_S_LIMIT)

    def _wait_for_turn(self) -> None:
        if not self._pause_s:
            return
        with self._lock:
            now_s = self._now()
            turn_s = max(self._next_s, now_s)
            self._next_s = turn_s + self._pause_s
        self._wait(turn_s - now_s)

    def _wait(self, seconds: float) -> None:
        if self._stopping.wait(seconds):
            raise StoppedError


def _read(response: httpx.Response) -> tuple[str, int]:
    try:
        body: Any = response.json()
        text = body["choices"][0]["message"]["content"]
        tokens = (body.get("usage") or {}).get("total_tokens")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        shown = response.text[:300]
        raise SettingsError(
            f"the judge's answer is no chat completion: {shown}", next_step="Give its base URL with /v1."
        ) from error
    return text if isinstance(text, str) else "", tokens if isinstance(tokens, int) and tokens > 0 else 0


def _seconds(header: str) -> float:
    """Of ``retry-after`` in seconds; a date counts as a short pause."""
    return min(float(header), PAUSE_S_LIMIT) if header.isascii() and header.isdigit() else PAUSE_S_MAX
