"""Follows the ``resources`` topic: every committed record with a checkpoint becomes a version of the policy."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Protocol

from confluent_kafka import Message

from lightstream.runtime.kafka import TopicTail
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError
from lightstream.schemas.policy_names import version_of_model
from lightstream.schemas.records import ResourcesRecord
from lightstream.schemas.topics import RESOURCES

from ..run.checkpoint import folder_of
from .cpu.policy_version import NEWEST

logger = logging.getLogger(__name__)

POLL_S = 0.2
"""A record wakes the poll at once; this bounds how long a stop takes to be noticed."""

PAUSE_S = 0.002
"""No record for this long after some: what was read is the newest, and worth loading."""

FETCH_WAIT_MS = 500
"""A record ends the broker's wait at once; this is how often an idle topic is asked about."""

PARTITION = 0
"""``resources`` has one partition, so that "newest" has one order."""

FIRST_OFFSET = 0
"""All of it is read at each start: it is compacted, and only the newest version is loaded."""


class Announced(Protocol):
    """A listener that is told of versions."""

    is_catching_up: bool

    def announce(
        self,
        name: str,
        number: int,
        checkpoint_url: str,
        resources_id: str = "",
        *,
        run_id: str,
        also_called: str = "",
    ) -> None:
        """A version became known."""
        ...

    def caught_up(self) -> None:
        """All that was announced before us is known."""
        ...

    def load_newest(self) -> None:
        """Have the version announced last served."""
        ...


class VersionWatcher:
    """Announces versions and loads the newest ahead of the first request for it, in a thread of its own.

    Args:
        settings: names the cluster; its absence is waited out.
        versions: what to announce to.
        run_id: follow that run only; empty follows every run.
        on_failure: called, on this thread, where the topic cannot be read any more: it is missing, was deleted, or is
            not for this user. Without it, that is logged.
    """

    def __init__(
        self,
        settings: Settings,
        versions: Announced,
        *,
        run_id: str = "",
        on_failure: Callable[[LightstreamError], None] | None = None,
    ) -> None:
        self._settings = settings
        self._versions = versions
        self._run_id = run_id
        self._codec = codec_for(settings)
        self._on_failure = on_failure
        self._stopping = threading.Event()
        self._tail: TopicTail | None = None
        versions.is_catching_up = True
        self._thread = threading.Thread(target=self._run, name="lightstream-resources", daemon=True)

    def start(self) -> None:
        """Begin to read, from the topic's first record."""
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Stop reading."""
        self._stopping.set()
        self._thread.join(timeout_s)

    def unready(self) -> str | None:
        """Say which version of Lightstream is needed to read the records that were passed over; ``None`` if there are
        none."""
        return None if self._tail is None else self._tail.unready()

    def _run(self) -> None:
        limits = {"fetch.wait.max.ms": FETCH_WAIT_MS}
        try:
            tail = TopicTail(self._settings, [RESOURCES], group_id="lightstream-policy", limits=limits)
            self._tail = tail
            with closing(tail):
                tail.follow(RESOURCES, {PARTITION: FIRST_OFFSET})
                self._follow(tail)
        except LightstreamError as error:
            logger.error("no more versions of the policy are heard of: %s %s", error.message, error.next_step)
            if self._on_failure is not None:
                self._on_failure(error)
        finally:
            self._versions.caught_up()  # no more will be known: requests for others are refused, and do not wait

    def _follow(self, tail: TopicTail) -> None:
        has_news = False
        while not self._stopping.is_set():
            batch = tail.poll(PAUSE_S if has_news else POLL_S)
            for message in batch.records:
                has_news = self._read(tail, message) or has_news
            if batch.reached and self._versions.is_catching_up:
                self._versions.caught_up()
            if has_news and not batch.records:
                self._versions.load_newest()
                has_news = False

    def _read(self, tail: TopicTail, message: Message) -> bool:
        """Take one record in; returns whether it announced a version."""
        if message.value() is None:
            return False  # deleted with its run; what is loaded of it stays until this process ends
        record = tail.decode(self._codec, message)
        if not isinstance(record, ResourcesRecord) or not record.checkpoint_url:
            return False
        if self._run_id and record.run_id != self._run_id:
            return False
        if record.model or not record.adapters:
            name = record.model or f"{NEWEST}@{record.version}"
            # A record of 0.2.0 has `policy@7`, whatever the run.
            own_name = f"{record.run_id}@{record.version}" if record.run_id else ""
            self._announce(record, name, record.checkpoint_url, also_called=own_name)
        for name, folder in record.adapters.items():
            self._announce(record, name, folder)
        return True

    def _announce(self, record: ResourcesRecord, name: str, folder: str, *, also_called: str = "") -> None:
        version = version_of_model(name) if name in record.adapters else record.version
        self._versions.announce(
            name,
            record.version if version is None else version,
            str(folder_of(self._settings, folder)),
            record.resources_id,
            run_id=record.run_id,
            also_called=also_called,
        )
