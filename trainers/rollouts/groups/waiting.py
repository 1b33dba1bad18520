"""Words for a trainer that waits: the awaited groups, and the state of their rollouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError

PATIENCE_S, PATIENCE_S_MAX = 30.0, 3600.0
SHOWN_MAX = 3
VIEW_PATIENCE_S = 2.0


class Patience:
    """Says when to speak: after 30 s of silence, then after 60 s more, and so on up to an hour.

    Args:
        now_s: of a clock that never goes back, in seconds, as all times here.
    """

    def __init__(self, now_s: float) -> None:
        self.heard(now_s)

    def heard(self, now_s: float) -> None:
        """Something came."""
        self._since_s = self._said_s = now_s
        self._pause_s = PATIENCE_S

    def is_over(self, now_s: float) -> float:
        """Seconds since something came, if it is time to say so; else 0. True once for each pause."""
        if now_s - self._said_s <= self._pause_s:
            return 0.0
        self._said_s = now_s
        self._pause_s = min(2 * self._pause_s, PATIENCE_S_MAX)
        return now_s - self._since_s


class RunsRollouts:
    """Reads the states of a run's open rollouts from the view.

    Args:
        settings: name the view.
        run_id: whose rollouts.
    """

    def __init__(self, settings: Settings, run_id: str) -> None:
        self._settings = settings
        self._run_id = run_id

    def __call__(self) -> str:
        """One line; it names the command that shows all. Never raises: without a view it says that."""
        from lightstream.store_views.client import ViewClient

        command = f"lightstream sql :stuck --run {self._run_id} --seconds 0"
        client = ViewClient(self._settings, patience_s=VIEW_PATIENCE_S)
        try:
            values = {"run": self._run_id, "seconds": 0, "limit": SHOWN_MAX}
            rows = client.query(":stuck", params=values, timeout_s=VIEW_PATIENCE_S).dicts()
        except LightstreamError as error:
            return f"What they do is not known: {error.message} Later: {command}"
        finally:
            client.close()
        return f"{rollouts_line(rows)} All: {command}"


def groups_line(missing: Mapping[str, int]) -> str:
    """A phrase.

    Args:
        missing: group -> how many of its trajectories are here.
    """
    shown = ", ".join(f"{group} ({count} here)" for group, count in list(missing.items())[:SHOWN_MAX])
    are = "1 group is" if len(missing) == 1 else f"{len(missing)} groups are"
    return f"{are} not complete: {shown}{', …' if len(missing) > SHOWN_MAX else ''}"


def rollouts_line(rows: Sequence[Mapping[str, Any]]) -> str:
    """A sentence.

    Args:
        rows: of the query ``:stuck``, the quietest rollout first.
    """
    if not rows:
        return "All rollouts of the run have ended; the stream processors have yet to write their trajectories."
    return f"Quietest rollouts: {'; '.join(map(_life, rows))}."


def _life(row: Mapping[str, Any]) -> str:
    worker, quiet_s = row["worker_id"], row["quiet_seconds"]
    runner = f"Runner {worker}" if worker else "no Runner has taken it"
    return f"{row['rollout_id']} ({row['status']}, {runner}, last sign of life {quiet_s:.0f} s ago)"
