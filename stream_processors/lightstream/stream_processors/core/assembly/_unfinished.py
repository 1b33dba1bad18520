"""A closed attempt whose trajectory has not been made yet."""

from __future__ import annotations

from dataclasses import dataclass

from lightstream.schemas.records import AttemptClosed, Trajectory

from ._attempt import OpenAttempt

__all__ = ["UnfinishedAttempt"]


@dataclass(frozen=True, slots=True)
class UnfinishedAttempt:
    """What :meth:`Assembler.detach` leaves to its caller: nobody else holds it, so any thread may finish it."""

    _attempt: OpenAttempt
    _closed: AttemptClosed
    _closed_offset: int
    _partition: int

    @property
    def first_offset(self) -> int:
        """Where the attempt opened."""
        return self._attempt.first_offset

    def trajectory(self) -> Trajectory:
        """The attempt's trajectory; about 10 microseconds per span."""
        return self._attempt.close(self._closed, self._closed_offset, self._partition)
