"""What the life cycle goes by where a rollout's own configuration says nothing, and what it accepts at most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import RolloutConfig, RolloutSpec

__all__ = [
    "ATTEMPTS_MAX",
    "ATTEMPTS_METADATA_BYTES_MAX",
    "ERROR_MESSAGE_CHARACTERS_MAX",
    "ERROR_TYPE_CHARACTERS_MAX",
    "Limits",
]

ATTEMPTS_MAX = 1000
"""Attempts of one rollout. Each stays in the rollout's state, so their number bounds its size."""

ERROR_MESSAGE_CHARACTERS_MAX = 2000
"""Kept of an attempt's error in the state, of both its ends (the event has more): 8 KB in UTF-8 at most."""

ERROR_TYPE_CHARACTERS_MAX = 200

ATTEMPT_BYTES_MAX = 4 * (ERROR_MESSAGE_CHARACTERS_MAX + ERROR_TYPE_CHARACTERS_MAX) + 4096
"""One attempt in a state record: the error, and ids of up to 1,024 characters."""

ATTEMPTS_METADATA_BYTES_MAX = 256 * 1024
"""Metadata of all attempts of a rollout together: they travel in each of its state records."""

RECORD_RESERVE_BYTES = 64 * 1024 + ATTEMPTS_METADATA_BYTES_MAX
"""Room for the rest of a state record: verdict, ids, framing, the attempts' metadata."""

RESOURCES_RESERVE_BYTES = 64 * 1024
"""Room for the rest of a record of resources: ids, times, the checkpoint's address, framing."""

DURATION_S_MAX = 10 * 365 * 24 * 3600.0
"""Ten years. Longer deadlines, infinity too, count as this, so that they fit in int64 nanoseconds."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Deadlines for rollouts that name none, and the largest rollout.

    Attributes:
        timeout_s: deadline of an attempt, in seconds since its start.
        unresponsive_s: silence, in seconds, after which an attempt counts as lost.
        record_bytes_max: largest Kafka record; a rollout whose state might outgrow it is refused.
    """

    timeout_s: float = 600.0
    unresponsive_s: float = 60.0
    record_bytes_max: int = 32 * 1024 * 1024

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The limits that ``settings`` ask for."""
        return cls(settings.rollout_timeout_s, settings.rollout_unresponsive_s, settings.record_bytes_max)

    @property
    def resources_bytes_max(self) -> int:
        """Largest resources, names and values together, in bytes of UTF-8, that fit in a record."""
        return self.record_bytes_max - RESOURCES_RESERVE_BYTES

    def timeout_nanos(self, config: RolloutConfig) -> int:
        """Nanoseconds from an attempt's start to its deadline."""
        return _nanos(self.timeout_s if config.timeout_seconds is None else config.timeout_seconds)

    def unresponsive_nanos(self, config: RolloutConfig) -> int:
        """Nanoseconds of silence after which an attempt is unresponsive."""
        return _nanos(self.unresponsive_s if config.unresponsive_seconds is None else config.unresponsive_seconds)

    def spec_bytes_max(self, config: RolloutConfig) -> int:
        """Largest input and metadata together, in bytes of UTF-8, whose states fit in a record."""
        return self.record_bytes_max - RECORD_RESERVE_BYTES - config.max_attempts * ATTEMPT_BYTES_MAX

    def broken_rule(self, spec: RolloutSpec, attempts_made: int = 0) -> str:
        """Why this rollout cannot be accepted (or get the last of ``attempts_made``), or an empty string."""
        attempts = max(spec.config.max_attempts, attempts_made)
        if attempts > ATTEMPTS_MAX:
            name = "max_attempts is" if attempts > attempts_made else "the number of attempts would be"
            return f"{name} {attempts}, over the limit of {ATTEMPTS_MAX}"
        size = len(spec.input_json.encode()) + len(spec.metadata_json.encode())
        fits = self.spec_bytes_max(spec.config) - (attempts - spec.config.max_attempts) * ATTEMPT_BYTES_MAX
        if size > fits:
            return (
                f"input and metadata have {size:,} bytes; with {attempts} attempts at most "
                f"{max(fits, 0):,} fit in a record"
            )
        return ""


def _nanos(seconds: float) -> int:
    return int(min(seconds, DURATION_S_MAX) * NANOS_PER_SECOND)
