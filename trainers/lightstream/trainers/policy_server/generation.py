"""One sequence being generated: what is asked, what has come so far."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .policy_version import PolicyVersion
    from .text import StopWatcher

__all__ = ["Generation", "Job"]


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
        finish_reason: ``stop`` or ``length`` once over.
        error: why it could not be generated.
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

    @property
    def is_over(self) -> bool:
        """Finished, failed, or no longer wanted."""
        return self.finish_reason is not None or self.error is not None or self.job.cancelled


@dataclass(slots=True, eq=False)
class Job:
    """The choices of one request; all are sampled by one version.

    Attributes:
        version: the weights to use; held until the job is released.
        streams: wants to hear of every token, not only of the end.
        news: set (in the server's event loop) when there is something to hear.
        cancelled: set by the server when the client has gone.
        reported: set by the engine once it has reported that the job is over.
        released: set by the server once the version is let go.
    """

    version: PolicyVersion
    streams: bool
    news: asyncio.Event
    generations: list[Generation] = field(default_factory=list[Generation])
    cancelled: bool = False
    reported: bool = False
    released: bool = False

    @property
    def is_over(self) -> bool:
        """True once every choice is over."""
        return all(generation.is_over for generation in self.generations)
