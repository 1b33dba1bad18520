"""A closed attempt whose trajectory, or the next revision of it, has not been made yet."""

from __future__ import annotations

from dataclasses import dataclass

from lightstream.schemas.records import AttemptClosed, Trajectory

from ._attempt import OpenAttempt

__all__ = ["UnfinishedAttempt"]


@dataclass(frozen=True, slots=True)
class UnfinishedAttempt:
    """What :meth:`Assembler.detach` and :meth:`Assembler.take_revised` leave to their caller.

    Nobody else holds a detached attempt, so any thread may finish it; a revised one, while its assembler rests.
    """

    _attempt: OpenAttempt
    _closed: AttemptClosed
    _last_offset: int
    _partition: int
    _revision: int = 0

    @property
    def attempt_id(self) -> str:
        """Which attempt it is."""
        return self._closed.attempt_id

    @property
    def first_offset(self) -> int:
        """Where the attempt opened."""
        return self._attempt.first_offset

    def trajectory(self) -> Trajectory:
        """The attempt's trajectory; about 10 microseconds per span."""
        if self._revision:
            return self._attempt.revise(self._closed, self._last_offset, self._partition, self._revision)
        return self._attempt.close(self._closed, self._last_offset, self._partition)
