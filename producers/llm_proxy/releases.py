"""Releases as the proxy serves them: followed in the log, each call led to the model of its arm."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from pydantic_core import from_json

from lightstream.runtime.kafka import TopicTail
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError
from lightstream.schemas.records import ReleaseChanged, ReleaseKey
from lightstream.schemas.releases import folded, is_of_candidate
from lightstream.schemas.topics import RELEASES

from .call import Caller

logger = logging.getLogger(__name__)

POLL_S = 0.2
RETRY_S = 5.0
"""Pause before a topic that cannot be read is tried again."""

KEYS_REMEMBERED_MAX = 100_000
"""Keys of each release that stay on their arm while the share changes: some 20 MB."""

KEY_CHARS_MAX = 500

SESSION_HEADER = "x-lightstream-session"
USER_HEADER = "x-lightstream-user"
STABLE, CANDIDATE = "stable", "candidate"


@dataclass(frozen=True, slots=True)
class Routed:
    """The arm of one call.

    Attributes:
        state: the release as it was.
        arm: ``stable`` or ``candidate``.
        key, key_from: value that chose the arm, and the part of the request that had it.
        fallback: why the stable model answered in place of the candidate.
    """

    state: ReleaseChanged
    arm: str
    key: str
    key_from: str
    fallback: str | None = None

    @property
    def model(self) -> str:
        """Name of the model to ask."""
        if self.arm == CANDIDATE and self.fallback is None and self.state.candidate is not None:
            return self.state.candidate
        return self.state.stable

    @property
    def attributes(self) -> dict[str, Any]:
        """Of the call's span."""
        prefix = "lightstream.release."
        values = {
            "name": self.state.release,
            "arm": self.arm,
            "model": self.model,
            "stable": self.state.stable,
            "candidate": self.state.candidate,
            "revision": self.state.revision,
            "key": self.key,
            "key_from": self.key_from,
            "fallback": self.fallback,
        }
        return {prefix + name: value for name, value in values.items()}


class Releases:
    """The releases as far as the log was read. Kafka may be away: the last known ones serve.

    :meth:`route` belongs to one event loop; a thread of its own follows the log.

    Attributes:
        states: name -> state of every release; replaced as a whole.
        is_read: the log was read once, or cannot be read.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._codec = codec_for(settings)
        self.states: dict[str, ReleaseChanged] = {}
        self.is_read = False
        self._arms: dict[str, OrderedDict[str, str]] = {}
        self._arms_of: dict[str, tuple[Any, ...]] = {}
        self._caught_up = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lightstream-releases", daemon=True)
        self._problem: str | None = None

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reading. Blocks for a few seconds at most."""
        self._stopping.set()
        self._thread.join(10.0)

    def unready(self) -> str | None:
        """Say why releases are not followed now; ``None`` while they are."""
        return self._problem

    def _read(self) -> None:
        self.is_read = True
        self._caught_up.set()

    @property
    def names(self) -> list[str]:
        """All releases, in order of their names."""
        return sorted(self.states)

    async def known(self) -> None:
        """Wait until the log was read once: before that, a release is not told from a model. A cluster that is away
        is waited for as long as for a record."""
        if not self.is_read:
            await asyncio.to_thread(self._caught_up.wait, self._settings.publish_timeout_s)

    def route(self, fields: Mapping[str, Any], caller: Caller, headers: Mapping[str, str]) -> Routed | None:
        """The arm of a call; ``None`` where its model is no release."""
        name = fields.get("model")
        state = self.states.get(name) if isinstance(name, str) else None
        if state is None:
            return None
        key, key_from = key_of(state.key, fields, caller, headers)
        return Routed(state, self._arm(state, key, is_named=key_from != "trace"), key, key_from)

    def _arm(self, state: ReleaseChanged, key: str, *, is_named: bool) -> str:
        """The arm; the one that the key had before, while its candidate is the same and no pause came between."""
        if state.candidate is None or state.paused:
            self._arms.pop(state.release, None)
            return STABLE
        epoch = (state.stable, state.candidate, state.offered_unix_nano)
        if self._arms_of.get(state.release) != epoch:
            self._arms_of[state.release] = epoch
            self._arms[state.release] = OrderedDict()
        arms = self._arms.setdefault(state.release, OrderedDict())
        if not is_named:
            return CANDIDATE if is_of_candidate(state, key) else STABLE
        arm = arms.get(key)
        if arm is None:
            arm = arms[key] = CANDIDATE if is_of_candidate(state, key) else STABLE
            if len(arms) > KEYS_REMEMBERED_MAX:
                arms.popitem(last=False)
        else:
            arms.move_to_end(key)
        return arm

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with closing(TopicTail(self._settings, [RELEASES], group_id="lightstream-proxy")) as tail:
                    tail.follow(RELEASES, {0: 0})
                    self._follow(tail)
            except LightstreamError as error:
                if self._problem is None:
                    logger.error("releases are not followed, the last known serve: %s", error)
                self._problem = f"releases are not followed: {error}"
                self._read()  # calls of other models do not wait for it
                self._stopping.wait(RETRY_S)

    def _follow(self, tail: TopicTail) -> None:
        states: dict[str, ReleaseChanged] = {}
        is_read = False
        while not self._stopping.is_set():
            batch = tail.poll(POLL_S)
            for message in batch.records:
                record = None if message.value() is None else tail.decode(self._codec, message)
                if isinstance(record, ReleaseChanged):
                    folded(states, record)
            is_read = is_read or bool(batch.reached)
            if is_read and (batch.records or batch.reached):
                self.states = dict(states)  # at once, and not half of a topic that is read again
                self._problem = None
                self._read()


def key_of(key: ReleaseKey, fields: Mapping[str, Any], caller: Caller, headers: Mapping[str, str]) -> tuple[str, str]:
    """The value that keeps a caller on its arm, and where it came from. Pure.

    ``session``: header, baggage ``session.id``, metadata of OpenAI (``session_id``) and Anthropic (``user_id``, which
    has the session in Claude Code), ``user``. ``user``: the same of the user. Then the rollout, at last the trace.
    """
    for value, source in _named(key, fields, headers) if key is not ReleaseKey.ROLLOUT else ():
        if isinstance(value, str) and value.strip():
            return value.strip()[:KEY_CHARS_MAX], source
    return (caller.rollout_id, "rollout") if caller.rollout_id else (caller.trace_id, "trace")


def _named(key: ReleaseKey, fields: Mapping[str, Any], headers: Mapping[str, str]) -> list[tuple[Any, str]]:
    found = fields.get("metadata")
    metadata: Mapping[str, Any] = found if isinstance(found, dict) else {}
    baggage = _baggage(headers.get("baggage", ""))
    user: list[tuple[Any, str]] = [
        (metadata.get("user_id"), "metadata"),
        (fields.get("user"), "user"),
        (fields.get("safety_identifier"), "user"),
    ]
    if key is ReleaseKey.USER:
        named = [baggage.get(name) for name in ("user.id", "enduser.id")]
        return [(headers.get(USER_HEADER), "header"), *((value, "baggage") for value in named), *user]
    return [
        (headers.get(SESSION_HEADER), "header"),
        (baggage.get("session.id"), "baggage"),
        (baggage.get("gen_ai.conversation.id"), "baggage"),
        (metadata.get("session_id"), "metadata"),
        (metadata.get("session.id"), "metadata"),
        *user,
    ]


def _baggage(header: str) -> dict[str, str]:
    """Members of W3C's header ``baggage``: ``name=value;properties, …``, values percent-encoded."""
    members = (member.split(";", 1)[0].partition("=") for member in header.split(","))
    return {name.strip(): unquote(value.strip()) for name, equals, value in members if equals}


def with_releases(body: bytes, names: list[str]) -> dict[str, Any] | None:
    """The list of models in ``body`` with the releases first; ``None`` where it is no list of models."""
    try:
        found: Any = from_json(body)
    except ValueError:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("data"), list):
        return None
    others = [entry for entry in found["data"] if not (isinstance(entry, dict) and entry.get("id") in names)]
    return {**found, "data": [*map(entry_of, names), *others]}


def entry_of(name: str) -> dict[str, Any]:
    """A release in the list of models."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "lightstream-release"}
