"""The thread that generates: takes waiting requests, batches them per version, answers finished ones."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

import torch

from ..chat_api.generation import INTERRUPTED, Generation, Job
from ..chat_api.version import PolicyVersion
from .running_batch import RunningBatch

logger = logging.getLogger(__name__)

PROMPT_TOKENS_MAX = 16_384
"""Most tokens, padding included, that one pass over new prompts takes: bounds its memory and its duration."""

CACHE_WASTE_MAX = 4
"""A batch may hold this many times its tokens in padded columns; beyond, newcomers run as a batch of their own."""


class Engine:
    """Generates in its own thread.

    Every pass gives one token to every sequence under way; newcomers join between two passes, so that a long answer
    does not hold up a short one. Batches never mix versions: where a version has a successor, its sequences are read
    anew by that, so that each token's probability is that of one version's weights, for all that comes before it.

    Args:
        rows_max: most sequences under way at once.
        window_s: how long an idle engine waits for more requests to share the first pass.
        threads: CPU threads for arithmetic.
        succeed: gives the version that goes on with another's sequences (see :meth:`Versions.succeed`).
        on_news: gets, in the engine's thread, the jobs that are over (each once) and streaming ones with new tokens.
    """

    def __init__(
        self,
        *,
        rows_max: int,
        window_s: float,
        threads: int,
        on_news: Callable[[list[Job]], None],
        succeed: Callable[[PolicyVersion], PolicyVersion | None] = lambda _version: None,
    ) -> None:
        self._rows_max = rows_max
        self._window_s = window_s
        self._threads = threads
        self._on_news = on_news
        self._succeed = succeed
        self._waiting: deque[Generation] = deque()
        self._running: list[RunningBatch] = []
        self._wake = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="lightstream-engine", daemon=True)

    @property
    def waiting(self) -> int:
        """Sequences that are not under way yet."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Sequences that are under way."""
        return sum(len(batch.rows) for batch in self._running)

    @property
    def is_alive(self) -> bool:
        """True while it takes work."""
        return self._thread.is_alive() and not self._stopping

    def start(self) -> None:
        """Begin to take work."""
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """End after the pass under way; sequences that are not done fail."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(timeout_s)

    def submit(self, job: Job) -> None:
        """Queue every choice of ``job``."""
        with self._wake:
            self._waiting.extend(job.generations)
            self._wake.notify()

    def _run(self) -> None:
        torch.set_num_threads(self._threads)
        try:
            while not self._stopping:
                newcomers = self._with_successors(self._take())
                for batch in self._new_batches(newcomers):
                    self._advance(batch, batch.start)
                    if batch.rows:
                        self._admit(batch)
                for batch in self._running:
                    self._advance(batch, batch.step)
                self._running = [batch for batch in self._running if batch.rows]
        finally:
            self._stopping = True
            left = [row for batch in self._running for row in batch.rows] + list(self._waiting)
            self._fail(left, "the policy server is stopping")

    def _take(self) -> list[Generation]:
        """Jobs that wait, up to the free rows; blocks while there is nothing to do at all."""
        with self._wake:
            if not self._running:
                self._wake.wait_for(lambda: self._waiting or self._stopping)
                deadline = time.monotonic() + self._window_s
                while len(self._waiting) < self._rows_max and not self._stopping:
                    left_s = deadline - time.monotonic()
                    if left_s <= 0:
                        break
                    self._wake.wait(left_s)
            free = self._rows_max - self.running
            return [self._waiting.popleft() for _ in range(min(free, len(self._waiting)))]

    def _with_successors(self, newcomers: list[Generation]) -> list[Generation]:
        """Newcomers, and sequences under way of versions that have a successor: these too are read by that."""
        newest: set[PolicyVersion] = set()
        for row in [*(row for batch in self._running for row in batch.rows), *newcomers]:
            if row.job.version not in newest:
                newer = self._succeed(row.job.version)
                newest.add(newer or row.job.version)
                if newer is not None:
                    row.job.version = newer
                    _interrupt(row.job)
        left = [row for batch in self._running for row in batch.drop_finished()]
        self._running = [batch for batch in self._running if batch.rows]
        return left + newcomers

    def _new_batches(self, newcomers: list[Generation]) -> list[RunningBatch]:
        """Batches of one version each, rows of like length together, within the limit on padded tokens."""
        batches: list[RunningBatch] = []
        self._report([row for row in newcomers if row.is_over])  # interrupted, or the client has gone already
        ordered = sorted((r for r in newcomers if not r.is_over), key=lambda r: r.length)
        for row in ordered:
            fitting = [b for b in batches if b.version is row.job.version and _fits(b, row)]
            if fitting:
                fitting[-1].rows.append(row)
            else:
                batches.append(RunningBatch(row.job.version, [row]))
        return batches

    def _admit(self, batch: RunningBatch) -> None:
        for other in self._running:
            if other.rows and other.version is batch.version:
                rows, length = len(other.rows) + len(batch.rows), max(other.length, batch.length)
                if rows * length <= CACHE_WASTE_MAX * (other.tokens + batch.tokens):
                    other.join(batch)
                    return
        self._running.append(batch)

    def _advance(self, batch: RunningBatch, advance: Callable[[], None]) -> None:
        try:
            advance()
        except (RuntimeError, ValueError, IndexError) as error:  # torch's own, out of memory among them
            logger.exception("a batch of %d sequences failed", len(batch.rows))
            rows, batch.rows = batch.rows, []
            self._fail(rows, f"generation failed: {type(error).__name__}: {error}")
            return
        rows = list(batch.rows)
        batch.drop_finished()
        self._report(rows)

    def _fail(self, rows: list[Generation], message: str) -> None:
        for row in rows:
            row.error = row.error or message
        self._report(rows)

    def _report(self, rows: list[Generation]) -> None:
        """Pass on which of their jobs are over or have something to stream."""
        jobs = {id(row.job): row.job for row in rows}.values()
        news = [job for job in jobs if not job.reported and (job.streams or job.is_over)]
        for job in news:
            job.reported = job.is_over
        if news:
            self._on_news(news)


def _fits(batch: RunningBatch, row: Generation) -> bool:
    return (len(batch.rows) + 1) * row.length <= PROMPT_TOKENS_MAX


def _interrupt(job: Job) -> None:
    """End the choices that have something to go on with elsewhere; the others have nothing to hand back."""
    for generation in job.generations if job.is_continued_elsewhere else ():
        if not generation.is_over and len(generation.token_ids) > generation.given:
            generation.finish_reason = INTERRUPTED
