"""The results of a search, kept in its store: each once, in a rollout of its own."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import Attributes, Span

RESULT = "lightstream.apo.result"
"""Attribute of a journal's span: the result, as JSON. Others of this prefix say what the result is about."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A result, and how its span tells of it.

    Attributes:
        value: a JSON value.
        span_name: name of the span.
        attributes: of the span, beside the result.
    """

    value: Any
    span_name: str
    attributes: Attributes = field(default_factory=dict[str, Any])


class Journal:
    """The results of one search, by key. Whoever asks again, after a restart too, is given the first answer.

    Each is a rollout named ``<name>-<key>``, in which no Runner has a part, with one span. So results are durable when
    they are returned, and can be queried like everything else.

    Args:
        store: any store.
        name: names the search; it is the rollouts' ``run_id`` too.
    """

    def __init__(self, store: LightningStore, name: str) -> None:
        self._store = store
        self.name = name

    async def once(self, key: str, find: Callable[[], Awaitable[Finding]], *, about: Mapping[str, str | int]) -> Any:
        """Return the result of that key; if there is none yet, find it and keep it.

        Args:
            key: one result's name within the search.
            find: makes the result. What it raises is raised, and nothing is kept.
            about: what the result is about: attributes of the span.
        """
        rollout_id = f"{self.name}-{key}"
        exists = await self._store.get_rollout_by_id(rollout_id) is not None
        if exists:
            for span in await self._store.query_spans(rollout_id):
                if isinstance(kept := span.attributes.get(RESULT), str):
                    return json.loads(kept)
        started = time.time()
        found = await find()
        latest = await self._store.get_latest_attempt(rollout_id) if exists else None  # of a search that was killed
        if latest is None:
            begun = await self._store.start_rollout(dict(about), rollout_id=rollout_id, run_id=self.name)
            latest = begun.attempt
        attributes: Attributes = {f"lightstream.apo.{name}": value for name, value in about.items()}
        span = Span.from_attributes(
            attributes=found.attributes | attributes | {RESULT: json.dumps(found.value)},
            rollout_id=rollout_id,
            attempt_id=latest.attempt_id,
            sequence_id=1,
            name=found.span_name,
            trace_id=uuid.uuid4().hex,
            span_id=uuid.uuid4().hex[:16],
            start_time=started,
            end_time=time.time(),
        )
        await self._store.add_span(span)
        await self._store.update_attempt(rollout_id, latest.attempt_id, "succeeded")
        return found.value
