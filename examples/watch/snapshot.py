"""A run at a moment, read from the view."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from lightstream.trainers import ViewClient

__all__ = ["Snapshot", "take_snapshot"]

_COUNTS = """
SELECT
    (SELECT count(DISTINCT rollout_id) FROM rollout_events WHERE kind = 'enqueued') AS rollouts,
    (SELECT count(*) FROM spans_raw) AS spans,
    (SELECT count(*) FROM trajectories_raw WHERE revision = 0) AS trajectories,
    (SELECT count(*) FROM triplets_raw) AS triplets,
    (SELECT coalesce(sum(len(prompt_token_ids) + len(response_token_ids)), 0)::BIGINT FROM triplets_raw) AS tokens,
    (SELECT count(*) FROM dead_letters_raw) AS dead_letters
"""
_STEPS = "SELECT step, metrics FROM training_steps WHERE outcome IN ('updated', 'unchanged') ORDER BY log_offset"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counts since the beginning of the log, and each step's metrics.

    Attributes:
        monotonic_s: when it was taken, for rates between two snapshots.
        lag_records: records in the log that the view does not yet show.
        rewards: mean reward of each step so far; NaN where a step had none.
        logprob_diff_max: of the latest step.
    """

    monotonic_s: float
    rollouts: int = 0
    spans: int = 0
    trajectories: int = 0
    triplets: int = 0
    tokens: int = 0
    dead_letters: int = 0
    lag_records: int = 0
    step: int = 0
    rewards: list[float] = field(default_factory=list[float])
    logprob_diff_max: float = float("nan")


def take_snapshot(view: ViewClient) -> Snapshot:
    """Ask the view.

    Raises:
        ServiceUnavailableError: it does not answer.
    """
    counts = view.query(_COUNTS).dicts()[0]
    steps = view.query(_STEPS).rows
    metrics = [row[1] for row in steps]
    return Snapshot(
        monotonic_s=time.monotonic(),
        lag_records=int(view.positions()["lag_records"]),
        step=int(steps[-1][0]) if steps else 0,
        rewards=[float(m.get("reward/mean", "nan")) for m in metrics],
        logprob_diff_max=float(metrics[-1].get("logprob_diff_max", "nan")) if metrics else float("nan"),
        **counts,
    )
