"""Runs rollouts, for training or without."""

from __future__ import annotations

from lightstream.trainers import RolloutConfig

__all__ = ["RESOURCE", "ROLLOUT_CONFIG", "RUNNER_CONCURRENCY", "RUNNER_PROCESSES"]

RUNNER_PROCESSES = 1
RUNNER_CONCURRENCY = 32
RESOURCE = "main_llm"

ROLLOUT_CONFIG = RolloutConfig(
    timeout_seconds=120.0,
    unresponsive_seconds=10.0,
    max_attempts=5,
    retry_condition=["unresponsive", "timeout", "failed"],
)
