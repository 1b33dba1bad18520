"""``POST …/rollout/{rollout_id}/attempt/{attempt_id}/reward``: the reward of an attempt, for programs in any language.

    curl $LIGHTSTREAM_REWARD_URL -H "authorization: Bearer $OPENAI_API_KEY" -d '{"reward": 0.5}'

Becomes the span that ``emit_reward`` makes, in Kafka before the answer.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from lightstream.runtime.clock import Clock
from lightstream.runtime.kafka import Publisher
from lightstream.runtime.redaction import Redaction
from lightstream.schemas.attribute_names import AGL_ANNOTATION, AGL_LINK, AGL_REWARD
from lightstream.schemas.records import SpanRecord, SpanStatus
from lightstream.schemas.topics import SPANS

FIELDS = ("reward", "key", "response_id")
FORM = 'send {"reward": 0.5}, or {"reward": {"accuracy": 1, "style": 0.2}}, whose first entry is what trains'
NAME = "primary"
TEXT_CHARS_MAX = 1000


class RewardRecorder:
    """Records rewards. For one event loop."""

    def __init__(self, publisher: Publisher, clock: Clock, redaction: Redaction) -> None:
        self._publisher = publisher
        self._clock = clock
        self._redact = redaction

    async def record(self, rollout_id: str, attempt_id: str, body: Mapping[str, Any]) -> None:
        """Make a reward durable.

        Args:
            body: ``reward``, a number or name -> number; ``response_id`` of the call that it is for, else it is for the
                whole attempt; ``key``: a reward that is sent again with its key counts once.

        Raises:
            ValueError: the body says something else; nothing was written.
            LightstreamError: it is not known to be durable.
        """
        span = self._redact(_span(rollout_id, attempt_id, body, self._clock.now_unix_nano()))
        await asyncio.wrap_future(self._publisher.publish(SPANS, rollout_id, span))


def _span(rollout_id: str, attempt_id: str, body: Mapping[str, Any], now_unix_nano: int) -> SpanRecord:
    unknown = sorted(body.keys() - set(FIELDS))
    if unknown:
        raise ValueError(f"{', '.join(unknown)[:200]}: no such field; {FORM}")
    texts = {name: body.get(name, "") for name in ("key", "response_id")}
    for name, text in texts.items():
        if not isinstance(text, str) or len(text) > TEXT_CHARS_MAX:
            raise ValueError(f"{name} is a text of up to {TEXT_CHARS_MAX} characters")
    attributes: dict[str, Any] = {}
    for number, (name, value) in enumerate(_dimensions(body.get("reward")).items()):
        attributes |= {f"{AGL_REWARD}.{number}.name": name, f"{AGL_REWARD}.{number}.value": value}
    if texts["response_id"]:
        link = {"key_match": "gen_ai.response.id", "value_match": texts["response_id"]}
        attributes |= {f"{AGL_LINK}.0.{name}": value for name, value in link.items()}
    seed = "\0".join((rollout_id, attempt_id, texts["key"] or secrets.token_hex(16))).encode("utf-8", "replace")
    return SpanRecord(
        rollout_id=rollout_id,
        attempt_id=attempt_id,
        trace_id=blake2b(seed, digest_size=16, person=b"reward trace").hexdigest(),
        span_id=blake2b(seed, digest_size=8, person=b"reward span").hexdigest(),
        name=AGL_ANNOTATION,
        status=SpanStatus.OK,
        start_unix_nano=now_unix_nano,
        end_unix_nano=now_unix_nano,
        attributes=attributes,
        scope_name=__name__,
    )


def _dimensions(reward: Any) -> dict[str, float]:
    dimensions: dict[Any, Any] = reward if isinstance(reward, dict) else {NAME: reward}
    wrong = [value for value in dimensions.values() if type(value) not in (int, float) or not math.isfinite(value)]
    if not dimensions or wrong:
        raise ValueError(f"reward is {reward!r:.100}; {FORM}, finite numbers alone")
    return {str(name)[:TEXT_CHARS_MAX]: float(value) for name, value in dimensions.items()}
