"""Run programs of store calls: ``python -m tests.agent_lightning.calls <package>`` reads them from standard input.

Needs nothing but the package, Agent Lightning or ours: each runs in an environment of its own. For each program a list
of answers is printed, all of it JSON, in a form that is the same where the packages do the same: made-up ids are
numbered in the order in which they are seen, and of times only whether there is one is told.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import math
import re
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from .spans import readable_span, span

TIMEOUT_S = 60.0
TIMES = {"start_time", "end_time", "uptime"} | {
    f"{name}_time" for name in ("create", "last_busy", "last_dequeue", "last_heartbeat", "last_idle", "update")
}
MADE_UP = re.compile(r"(ro-[0-9a-z]{6,})(-[0-9a-z-]+)?|(at|rs)-[0-9a-z]{6,}")
"""Ids: ours of attempts begin with their rollout's."""
NO_SUCH_KEY = re.compile(r"Item does not exist with primary key\(s\): rollout_id='(.*)'")
"""How Agent Lightning says in one place what it calls "Rollout … not found" in all others."""
MAKES_ONE = ("start_rollout", "enqueue_rollout", "dequeue_rollout", "start_attempt")
MAKES_SEVERAL = ("enqueue_many_rollouts", "dequeue_many_rollouts")
NONEXISTENT = "nonexistent"
OVER = ("succeeded", "failed", "cancelled", "timeout", "unresponsive")


class Run:
    """One program on one new store."""

    def __init__(self, package: Any) -> None:
        self._package = package
        self._store = package.InMemoryLightningStore()
        self._names: dict[str, str] = {}
        self._rollouts: list[str] = []
        self._attempts: list[tuple[str, str]] = []
        self._resources: list[str] = []

    async def answer(self, call: dict[str, Any]) -> Any:
        """What the store answers to ``call``; ``None`` where it is left out."""
        if call["unless_over"] is not None and await self._is_over(*map(self._value, call["unless_over"])):
            return None
        if any(self._value(reference) == NONEXISTENT for reference in call["unless_unknown"]):
            return None
        args, kwargs = self._value(call["args"]), self._value(call["kwargs"])
        try:
            result = await asyncio.wait_for(getattr(self._store, call["method"])(*args, **kwargs), TIMEOUT_S)
        except ValueError as error:  # ours are more exact, and ValueErrors too
            return {"ValueError": self._told(NO_SUCH_KEY.sub(r"Rollout \1 not found", str(error)))}
        if call["method"] == "add_resources":
            self._resources.append(result.resources_id)
        elif call["method"] in MAKES_ONE:
            self._take(result)
        elif call["method"] in MAKES_SEVERAL:
            self._take(*result)
        return self._told(result)

    def _take(self, *answered: Any) -> None:
        """Number what is new."""
        for made in answered:
            if made is None:
                continue
            if made.rollout_id not in self._rollouts:
                self._rollouts.append(made.rollout_id)
            attempt = getattr(made, "attempt", None)
            if attempt is not None and (made.rollout_id, attempt.attempt_id) not in self._attempts:
                self._attempts.append((made.rollout_id, attempt.attempt_id))

    async def _is_over(self, rollout_id: str, attempt_id: str | None) -> bool:
        rollout = await self._store.get_rollout_by_id(rollout_id)
        if rollout is None:
            return False
        if rollout.status in OVER:
            return True
        attempts = await self._store.query_attempts(rollout_id)
        return any(known.status in OVER for known in attempts if known.attempt_id == attempt_id)

    def _value(self, written: Any) -> Any:
        """The argument that is meant."""
        if isinstance(written, list):
            return [self._value(item) for item in written]
        if not isinstance(written, dict):
            return written
        kind: str = next(iter(written), "")
        said: Any = written.get(kind)
        if kind in ("$rollout", "$resources", "$attempt", "$rollout_of"):
            known = {
                "$rollout": self._rollouts,
                "$resources": self._resources,
                "$attempt": [attempt_id for _, attempt_id in self._attempts],
                "$rollout_of": [rollout_id for rollout_id, _ in self._attempts],
            }[kind]
            return known[said] if said < len(known) else NONEXISTENT
        package = self._package
        makers: dict[str, Callable[..., Any]] = {
            "$span": partial(span, package),
            "$readable": readable_span,
            "$config": package.RolloutConfig,
            "$request": package.EnqueueRolloutRequest,
            "$llm": package.LLM,
            "$prompt": package.PromptTemplate,
        }
        fields: dict[str, Any] = said if kind in makers else written
        given = {name: self._value(value) for name, value in fields.items()}
        return makers[kind](**given) if kind in makers else given

    def _told(self, value: Any) -> Any:
        fields: Any = value.model_dump(mode="json") if hasattr(value, "model_dump") else value
        if isinstance(fields, dict):
            told = {
                name: (self._told(item) if name not in TIMES else item is not None)
                for name, item in fields.items()
                # Ours tells more of an attempt that failed; there the store in memory counts its bytes.
                if name not in ("error_type", "error_message") and not name.endswith("_bytes")
            }
            if told.get("status") in ("timeout", "unresponsive"):
                told["end_time"] = None  # there it has none
            return told
        if isinstance(value, str):
            return MADE_UP.sub(lambda found: self._names.setdefault(found[0], f"<{len(self._names)}>"), value)
        if value is None or isinstance(value, int | float):
            return None if value == math.inf else value  # no limit
        return {"items": [self._told(item) for item in value], "total": getattr(value, "total", None)}


async def main(package_name: str) -> None:
    package = importlib.import_module(package_name)
    for program in json.load(sys.stdin):
        run = Run(package)
        print(json.dumps([await run.answer(call) for call in program]), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    asyncio.run(main(sys.argv[1]))
