"""One sequence being generated: its request, and its tokens so far."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .text import StopWatcher
    from .version import PolicyVersion

INTERRUPTED = "interrupted"
"""The reason why an answer ends that another version is to go on with. vLLM's ``abort`` is the client's doing."""


@dataclass(slots=True, eq=False)
class Generation:
    """One choice of one request. The engine's thread appends; others only read (lists only ever grow).

    Attributes:
        prompt_ids: the prompt's tokens, at least one.
        tokens_max: most tokens to generate, at least one.
        temperature, top_p, top_logprobs: as in the request.
        chance: the source of this choice's draws.
        stop_watcher: looks for stop texts, or ``None``.
        token_ids, logprobs: what was sampled, aligned one to one; the end-of-turn token is among them.
        top: per token, the best (token, log-probability) pairs; empty unless asked for.
        ready: tokens whose text, log-probability and consequences are all recorded; readers look no further.
        text_end: length of the text before the stop text, once one was met.
        finish_reason: ``stop`` or ``length`` once over; :data:`INTERRUPTED` where another version is to go on with it.
        error: why it could not be generated.
        given: so many of ``token_ids`` came with the request; their log-probabilities are not known here.
        runs: of the others: from which token on which version sampled them, as (first token, version).
    """

    job: Job
    prompt_ids: list[int]
    tokens_max: int
    temperature: float
    top_p: float
    top_logprobs: int
    chance: random.Random
    stop_watcher: StopWatcher | None
    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    top: list[list[tuple[int, float]]] = field(default_factory=list[list[tuple[int, float]]])
    ready: int = 0
    text_end: int | None = None
    finish_reason: str | None = None
    error: str | None = None
    given: int = 0
    runs: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    @property
    def ids(self) -> list[int]:
        """The tokens of the prompt and of the answer."""
        return self.prompt_ids + self.token_ids

    @property
    def length(self) -> int:
        """The number of these."""
        return len(self.prompt_ids) + len(self.token_ids)

    @property
    def is_over(self) -> bool:
        """Finished, failed, or no longer wanted."""
        return self.finish_reason is not None or self.error is not None or self.job.cancelled


@dataclass(slots=True, eq=False)
class Job:
    """The choices of one request.

    Attributes:
        version: the weights to use; held until the job is released. The engine's thread puts its successor there.
        is_continued_elsewhere: who asks goes on with what it gets, where a new version interrupts it.
        streams: wants to hear of every token, not only of the end.
        news: set (in the server's event loop) when there is something to hear.
        cancelled: set by the server when the client has gone.
        reported: set by the engine once it has reported that the job is over.
        released: set by the server once the version is let go.
    """

    version: PolicyVersion
    streams: bool
    news: asyncio.Event
    is_continued_elsewhere: bool = False
    generations: list[Generation] = field(default_factory=list[Generation])
    cancelled: bool = False
    reported: bool = False
    released: bool = False

    @property
    def is_over(self) -> bool:
        """True once every choice is over."""
        return all(generation.is_over for generation in self.generations)
