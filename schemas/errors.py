"""The errors that cross from one part of Lightstream to another, as one tree; others stand where they are raised.

    LightstreamError
    ├── SettingsError            a setting is missing or out of range; names the variable and what it accepts
    ├── BrokerError              the embedded Kafka could not be fetched, started or stopped
    ├── TopicMismatchError       a topic exists with settings other than ours; it was left as it is
    ├── PublishError             a record did not become durable; the caller still owns it
    │   ├── RecordRefusedError   the topic does not take this record, and will not the next time
    │   │   └── RecordTooLargeError  it is over the topic's limit
    │   └── BackpressureError    the bounded buffer stayed full; the record was not accepted
    ├── DecodeError              bytes that are not a record of ours; becomes a dead letter
    │   └── UnknownSchemaError   framed correctly, but by a schema we do not have
    │       └── NewerWriterError another version of Lightstream wrote it: no dead letter, it is kept until that is here
    ├── RecordError              a record that decodes but breaks a rule of its model
    ├── StoreError               a call on the store was refused; it changed nothing, unless it was of several things
    │   └── NotFoundError        the rollout, attempt, resource or worker does not exist
    ├── ArtefactError            what an address holds is not what the resource says, or cannot be had; nothing was used
    ├── QueryError               SQL that was refused or failed; the view is unchanged
    ├── ServiceUnavailableError  a process we need does not answer; says how to start it
    └── TrainingError            a step could not be made; log and checkpoint still agree

Two rules. A bad *rollout* is data, not a crash: it ends as a failed attempt, a ``dropped`` row or a dead letter.
An error raised to a person carries the values that disagree and the next step to take.
"""

from __future__ import annotations


class LightstreamError(Exception):
    """Base of all errors raised by Lightstream.

    Attributes:
        next_step: what the reader can do about it, or an empty string where the message already says so.
    """

    def __init__(self, message: str, *, next_step: str = "") -> None:
        super().__init__(f"{message} {next_step}".strip() if next_step else message)
        self.message = message
        self.next_step = next_step


class SettingsError(LightstreamError):
    """A setting is missing or has a value it cannot have."""


class BrokerError(LightstreamError):
    """The embedded Kafka could not be fetched, started or stopped."""


class TopicMismatchError(LightstreamError):
    """A topic exists with different settings than declared. The topic is unchanged.

    Attributes:
        topic: full name of the topic.
        differences: setting -> (declared value, value found on the cluster).
    """

    def __init__(self, topic: str, differences: dict[str, tuple[str, str]]) -> None:
        found = ", ".join(f"{k}: declared {a}, found {b}" for k, (a, b) in sorted(differences.items()))
        super().__init__(
            f"topic {topic!r} exists with different settings ({found}).",
            next_step="Change the topic with `lightstream topics change` (all but its partitions) or with your "
            "cluster's tools, or choose another LIGHTSTREAM_TOPIC_PREFIX.",
        )
        self.topic = topic
        self.differences = differences


class PublishError(LightstreamError):
    """A record did not become durable. It was not acknowledged; the caller still owns it."""


class RecordRefusedError(PublishError):
    """A topic does not take a record, now or later: sending it again is in vain."""


class RecordTooLargeError(RecordRefusedError):
    """An encoded record is over the limit of its topic and was not sent.

    Attributes:
        size_bytes: encoded size of the record.
        limit_bytes: largest size the topic takes; where that is not known, one that is worth a try.
    """

    def __init__(self, topic: str, size_bytes: int, limit_bytes: int | None) -> None:
        limit = "limit" if limit_bytes is None else f"limit of {limit_bytes:,} bytes"
        super().__init__(
            f"a record of {size_bytes:,} bytes is over the {limit} of {topic!r}.",
            next_step="Raise LIGHTSTREAM_RECORD_BYTES_MAX and the topic's max.message.bytes, or shrink the record.",
        )
        self.size_bytes = size_bytes
        self.limit_bytes = size_bytes * 3 // 4 if limit_bytes is None else limit_bytes


class BackpressureError(PublishError):
    """The bounded send buffer stayed full for the allowed wait; the record was not accepted."""


class DecodeError(LightstreamError):
    """Bytes that are not a record of ours."""


class UnknownSchemaError(DecodeError):
    """A well-framed record written with a schema we do not know.

    Attributes:
        schema: the fingerprint (16 hex digits) or the registry's schema id, as text.
    """

    def __init__(self, schema: str) -> None:
        super().__init__(f"no schema with fingerprint or id {schema} is known here.")
        self.schema = schema


class NewerWriterError(UnknownSchemaError):
    """A record of ours, by a schema that only another version of Lightstream has. It is not lost, and no dead letter.

    Attributes:
        writer: the version to install.
    """

    def __init__(self, schema: str, writer: str) -> None:
        LightstreamError.__init__(
            self,
            f"Lightstream {writer} wrote it by schema {schema}, which is not known here.",
            next_step=f"Install version {writer} or a later one; the record is kept, and read then.",
        )
        self.schema = schema
        self.writer = writer


class RecordError(LightstreamError):
    """A record that decodes but breaks a rule of its model."""


class StoreError(LightstreamError, ValueError):
    """A call on the store was refused. It changed nothing; one of several things may have changed the others.

    Also a ``ValueError``, as callers of Agent Lightning's store expect of an id that does not exist.
    """


class NotFoundError(StoreError):
    """The rollout, attempt, resource or worker named does not exist."""


class ArtefactError(LightstreamError):
    """The file at an artefact's address is not the one that the resource names, or cannot be fetched.

    Attributes:
        url: the address.
    """

    def __init__(self, url: str, problem: str, *, next_step: str = "") -> None:
        super().__init__(f"the artefact at {url} {problem}", next_step=next_step)
        self.url = url


class QueryError(LightstreamError):
    """SQL that was refused or failed. The view is unchanged."""


class ServiceUnavailableError(LightstreamError):
    """A Lightstream process that is needed does not answer."""


class AccessRefusedError(ServiceUnavailableError):
    """A service refuses our credentials or certificate. It answers the same until somebody changes that."""


class TrainingError(LightstreamError):
    """A training step could not be made. The log and the latest checkpoint still agree."""


class StoppedError(LightstreamError):
    """Work was asked to stop, and did; asked for again, it goes on where it was."""
