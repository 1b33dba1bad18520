"""The words for where rollouts, attempts and workers stand, as text."""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = ["FINISHED", "AttemptStatus", "RolloutMode", "RolloutStatus", "StatusCode", "WorkerStatus"]

RolloutStatus: TypeAlias = Literal["queuing", "preparing", "running", "failed", "succeeded", "cancelled", "requeuing"]
"""A rollout waits (queuing; requeuing, for a retry), was handed out (preparing), gave its first sign of life
(running), or is over (failed, succeeded, cancelled), which nothing changes."""

AttemptStatus: TypeAlias = Literal["preparing", "running", "failed", "succeeded", "unresponsive", "timeout"]
"""``unresponsive``: no sign of life for too long; may return to running. ``timeout``: over its deadline."""

RolloutMode: TypeAlias = Literal["train", "val", "test"]
WorkerStatus: TypeAlias = Literal["idle", "busy", "unknown"]
StatusCode: TypeAlias = Literal["UNSET", "OK", "ERROR"]

FINISHED: frozenset[RolloutStatus] = frozenset({"failed", "succeeded", "cancelled"})
"""Statuses that end a rollout."""
