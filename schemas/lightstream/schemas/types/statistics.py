"""What a store says about itself."""

from __future__ import annotations

from typing import TypedDict

__all__ = ["LightningStoreCapabilities", "LightningStoreStatistics"]


class LightningStoreCapabilities(TypedDict, total=False):
    """What a store can do; a missing key means that it cannot.

    Keys: ``thread_safe`` (usable from several threads), ``async_safe`` (from several tasks), ``zero_copy`` (an object
    handed to another process is still the same store), ``otlp_traces`` (takes OTLP/HTTP).
    """

    thread_safe: bool
    async_safe: bool
    zero_copy: bool
    otlp_traces: bool


class LightningStoreStatistics(TypedDict, total=False):
    """How much a store holds. ``uptime`` is in seconds; ``total_span_bytes`` is an estimate."""

    name: str
    total_rollouts: int
    total_attempts: int
    total_spans: int
    total_resources: int
    total_workers: int
    uptime: float
    total_span_bytes: int
    eviction_threshold_bytes: int
    safe_threshold_bytes: int
    memory_capacity_bytes: int
