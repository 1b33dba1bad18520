"""The error policy of readers of topics: waits for transient errors to pass, ends the reader on all others."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from lightstream.schemas.errors import ServiceUnavailableError

from ..settings import Settings
from .unavailable import TOPIC_MISSING, kafka_unavailable

logger = logging.getLogger(__name__)

T = TypeVar("T")

ANSWER_TIMEOUT_S = 30.0
"""For one answer of the cluster."""

PATIENCE_S = 60.0
"""Time for which a question is repeated; longer than a broker's restart, even the half minute of a busy machine."""

MISSING_PATIENCE_S = 5.0
"""A topic is missing once the cluster's metadata have lacked it for this long without a break. A broker that restarts
may say so too, but only for moments: it answers once it has read the metadata."""

QUIET_S = 2.0
"""An error that was not reported again for this long is over if the cluster answers. A broker that is away is reported
twice a second, and may be once more when it is back already: what it was asked before is answered late."""

RETRY_INTERVAL_S = 0.2

UNKNOWN_TOPIC = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)

PASSING_ERRORS = UNKNOWN_TOPIC | {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._DESTROY_BROKER,
    KafkaError._WAIT_COORD,
}
"""Answers of a cluster while a broker restarts. librdkafka tries some of these again by itself, but not all: a broker
that is back before it has loaded the groups answers ``NOT_COORDINATOR`` to whoever asked it before it went, and it
lists topics before it serves their partitions. What was asked of the bootstrap connection in the moment in which the
broker is known by its number is ``_DESTROY_BROKER``."""

REFUSALS = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError._AUTHENTICATION,
    }
)
"""The cluster does not let this user in, or not there. It will not before somebody changes that, so waiting is no use;
librdkafka tries again all the same, and does not call them fatal."""


@dataclass(slots=True)
class _Spell:
    """An error that is waited for: since when, and when it was reported last."""

    since_s: float
    reported_s: float


class ReadErrors:
    """Handles the errors of one reader: raises them, or waits for their end and logs them once. Not thread-safe.

    Errors by which the cluster refuses this user, and librdkafka's fatal ones, are raised. All others pass: the first
    of a spell is logged, and its end. That a topic is unknown is an error that passes, until the metadata have said so
    for :data:`MISSING_PATIENCE_S` seconds (see :meth:`described`).

    Args:
        topics: full names of what is read.
        user: whom the cluster takes us for (see :func:`kafka_user`).
        missing_step: what a person does about a topic that is not there.
    """

    def __init__(self, topics: Iterable[str], user: str, *, missing_step: str = TOPIC_MISSING) -> None:
        self._all = ", ".join(repr(topic) for topic in sorted(topics))
        self._user = user
        self._missing_step = missing_step
        self._spells: dict[str | None, _Spell] = {}
        self._back_s = float("-inf")  # when the cluster could be read again
        self._missing_since_s: dict[str, float] = {}
        self._topic_ids: dict[str, str] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether an error is waited for."""
        return bool(self._spells or self._missing_since_s)

    def reported(self, error: KafkaError, topic: str | None, now_s: float) -> None:
        """The client has reported an error, of one topic or of the cluster. One of the cluster just after its last one
        has passed is late news of that.

        Raises:
            ServiceUnavailableError: it does not pass by itself.
        """
        if error.fatal() or error.code() in REFUSALS:
            raise self._unavailable(error, topic)
        spell = self._spells.get(topic)
        if spell is not None:
            spell.reported_s = now_s
            return
        if topic is None and now_s - self._back_s < QUIET_S:
            return
        self._spells[topic] = _Spell(now_s, now_s)
        trouble = self._unavailable(error, topic)
        logger.warning("%s It is tried again until it succeeds. %s", trouble.message, trouble.next_step)

    def reported_of_cluster(self, error: KafkaError, now_s: float) -> None:
        """As :meth:`reported`, from the client's reports to its ``error_cb``; a single failed connection says little.

        Raises:
            ServiceUnavailableError: it does not pass by itself.
        """
        code = error.code()
        if error.fatal() or code == KafkaError._ALL_BROKERS_DOWN or code in REFUSALS or code in UNKNOWN_TOPIC:
            self.reported(error, None, now_s)

    def read(self, topic: str, now_s: float) -> None:
        """A record of the topic came, or its end was reached."""
        if self._spells:
            self._over((topic, None), now_s)

    def described(self, topic: str, found: str | KafkaError, now_s: float) -> None:
        """The cluster has told the topic's id, or why it does not.

        Raises:
            ServiceUnavailableError: the topic is missing for good, is another than before, or is not for this user.
        """
        if not isinstance(found, KafkaError):
            self._missing_since_s.pop(topic, None)
            if self._topic_ids.setdefault(topic, found) != found:
                raise self.replaced(topic)
            quiet = [key for key in (topic, None) if key in self._spells and self._is_quiet(key, now_s)]
            self._over(quiet, now_s)
        elif found.code() not in UNKNOWN_TOPIC:
            self._missing_since_s.clear()  # a cluster that restarts: what it said of topics just before is no evidence
            self.reported(found, topic if found.code() in REFUSALS else None, now_s)
        elif now_s - self._missing_since_s.setdefault(topic, now_s) >= MISSING_PATIENCE_S:
            raise self._missing(topic)

    def replaced(self, topic: str) -> ServiceUnavailableError:
        """The error to raise where a topic is not the one that was read before."""
        return ServiceUnavailableError(
            f"topic {topic!r} was deleted and made again, or has lost records, while it was read.",
            next_step="Start this process again: it reads all that is there now.",
        )

    def refused(self, error: KafkaException) -> ServiceUnavailableError:
        """The error to raise where the client cannot be made."""
        trouble = kafka_unavailable(error, what=f"{self._all} cannot be read")
        step = "Correct LIGHTSTREAM_KAFKA_SECURITY_PROTOCOL and the settings beside it, then start this process again."
        return ServiceUnavailableError(trouble.message, next_step=step)

    def _missing(self, topic: str) -> ServiceUnavailableError:
        if topic in self._topic_ids:
            return ServiceUnavailableError(
                f"topic {topic!r} was deleted while it was read.", next_step=self._missing_step
            )
        return ServiceUnavailableError(f"the cluster has no topic {topic!r}.", next_step=self._missing_step)

    def _unavailable(self, error: KafkaError, topic: str | None) -> ServiceUnavailableError:
        what = f"topic {topic!r} cannot be read" if topic is not None else f"{self._all} cannot be read"
        trouble = kafka_unavailable(KafkaException(error), what=what)
        step = trouble.next_step
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            step = grant_step(self._all if topic is None else repr(topic), self._user)
        elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            step = f"Grant READ on this reader's consumer group to {self._user}, then start this process again."
        elif error.code() in UNKNOWN_TOPIC:
            step = self._missing_step
        return ServiceUnavailableError(trouble.message, next_step=step)

    def _is_quiet(self, key: str | None, now_s: float) -> bool:
        return now_s - self._spells[key].reported_s >= QUIET_S

    def _over(self, keys: Iterable[str | None], now_s: float) -> None:
        for key in keys:
            if (spell := self._spells.pop(key, None)) is not None:
                if key is None:
                    self._back_s = now_s
                named = self._all if key is None else repr(key)
                logger.warning("%s can be read again, after %.0f s.", named, now_s - spell.since_s)


def grant_step(topics: str, user: str) -> str:
    """Return the next step for a person who may not read topics."""
    return f"Grant READ on topic {topics} to {user}, then start this process again."


def kafka_user(settings: Settings) -> str:
    """Return our name in the cluster's access control lists."""
    return f"User:{settings.kafka_sasl_username if settings.kafka_sasl_mechanism else 'ANONYMOUS'}"


def answered(ask: Callable[[], T], *, what: str) -> T:
    """The answer to ``ask``, which is asked again for as long as a broker's restart may take.

    Args:
        what: what failed if no answer comes, as the beginning of a sentence.

    Raises:
        ServiceUnavailableError: no answer within a minute, an error that does not pass by itself, or the topic was
            unknown for :data:`MISSING_PATIENCE_S` seconds without a break.
    """
    until_s = time.monotonic() + PATIENCE_S
    unknown_since_s: float | None = None
    while True:
        try:
            return ask()
        except KafkaException as error:
            code, now_s = error.args[0].code(), time.monotonic()
            unknown_since_s = (unknown_since_s or now_s) if code in UNKNOWN_TOPIC else None
            is_missing = unknown_since_s is not None and now_s - unknown_since_s >= MISSING_PATIENCE_S
            if code not in PASSING_ERRORS or is_missing or now_s > until_s:
                raise kafka_unavailable(error, what=what) from error
        time.sleep(RETRY_INTERVAL_S)
