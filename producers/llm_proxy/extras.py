"""Token ids and log-probabilities, requested beside the agent's own fields; and the servers that refuse them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

from lightstream.runtime.clock import Clock

from .dialects import Endpoint
from .server_answers import shown
from .upstream import UpstreamAnswer

logger = logging.getLogger(__name__)

EXTRAS: Mapping[Endpoint, dict[str, Any]] = {
    "chat/completions": {"logprobs": True, "return_token_ids": True},
    "completions": {"logprobs": 1, "return_token_ids": True},  # a number there: so many alternatives
    "embeddings": {},
}
"""What is asked for, by the model server's endpoint."""

REFUSING = frozenset({400, 422, 500, 501})
"""Statuses of a server that does not take a parameter: llama.cpp has 500 for some."""

REMEMBERED_S = 60.0
"""A refusal counts for so long: it costs one short request more, and a server behind a name may be another tomorrow."""

REASON_CHARS_MAX = 300
SHAPES_MAX = 10_000
"""Kinds of request that are remembered; all are forgotten beyond, which costs a request each."""

Ask: TypeAlias = Callable[[dict[str, Any]], Awaitable[UpstreamAnswer]]
Shape: TypeAlias = "tuple[str, str, bool, frozenset[str]]"


@dataclass(slots=True)
class _Known:
    """What a server said of requests of one shape.

    Attributes:
        refused: extra -> until when it is left out, and why.
        accepted_s: when all extras were last taken.
    """

    refused: dict[str, tuple[float, str]] = field(default_factory=dict[str, tuple[float, str]])
    accepted_s: float = float("-inf")


class Extras:
    """Asks for extras, and leaves out extras that a server refuses.

    An extra is left out where an error names it and the same request without it is answered: an error that merely
    quotes its request refuses nothing. It is left out of requests of that shape (endpoint, model, streaming, names of
    parameters) for a minute, unless another replica took it within the minute before. Not thread-safe.

    Args:
        clock: by which that minute is counted.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[Shape, _Known] = {}

    async def ask(
        self, ask: Ask, endpoint: Endpoint, request: dict[str, Any], *, streams: bool
    ) -> tuple[UpstreamAnswer, dict[str, str]]:
        """The answer to ``request``, and each extra that was not asked for, with the reason.

        Args:
            ask: sends a request to the model server.
        """
        shape = endpoint, str(request.get("model")), streams, frozenset(n for n, v in request.items() if v is not None)
        now_s = self._clock.now_unix_nano() / 1e9
        known = self._known.get(shape) or _Known()
        extras = {n: v for n, v in EXTRAS[endpoint].items() if not (n == "logprobs" and request.get("logprobs"))}
        left_out = {n: why for n, (until_s, why) in known.refused.items() if n in extras and now_s < until_s}
        newly: dict[str, str] = {}
        named: dict[str, str] = {}
        tried: list[frozenset[str]] = []
        while True:
            without = {**left_out, **newly}
            answer = await ask(request | {n: v for n, v in extras.items() if n not in without})
            tried.append(frozenset(newly))
            asked_for = [name for name in extras if name not in without]
            if answer.status not in REFUSING:
                break
            named |= {name: self._reason(answer) for name in asked_for if name.encode() in (answer.body or b"")}
            following = _next_to_try(named, tried)
            if following is None:
                return answer, without
            newly = {name: named[name] for name in following}
        if answer.status == 200:
            self._note(shape, known, newly, now_s, takes_all=not without)
        return answer, without

    def _note(self, shape: Shape, known: _Known, newly: Mapping[str, str], now_s: float, *, takes_all: bool) -> None:
        if takes_all:
            known.accepted_s = now_s
        elif newly and now_s - known.accepted_s > REMEMBERED_S:
            for name, why in newly.items():
                if name not in known.refused:
                    logger.warning("the model %s is not asked for %s in requests of one kind: %s", shape[1], name, why)
                known.refused[name] = now_s + REMEMBERED_S, why
        if len(self._known) >= SHAPES_MAX:
            self._known.clear()
        self._known[shape] = known

    def _reason(self, answer: UpstreamAnswer) -> str:
        at = datetime.fromtimestamp(self._clock.now_unix_nano() / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return f"the LLM server refused it ({at}): {answer.status} {shown(answer.body)[:REASON_CHARS_MAX]}"


def _next_to_try(named: dict[str, str], tried: list[frozenset[str]]) -> frozenset[str] | None:
    """The extras to leave out next: each of those that an error named alone, then all of them."""
    candidates = [frozenset({name}) for name in reversed(named)] + [frozenset(named)]
    return next((candidate for candidate in candidates if candidate and candidate not in tried), None)
