"""The system that an example trains with, from its start to the account of what it did."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console

from examples.watch import show_checks, show_result
from lightstream.trainers import Settings, ViewClient
from lightstream.up import Stack

__all__ = ["ACCOUNTED", "has_learned", "started"]

ACCOUNTED = "every LLM call, trajectory and step is accounted for"


@contextmanager
def started(settings: Settings, console: Console) -> Generator[Settings]:
    """Start Kafka, worker, view, policy server and proxy; yields the settings that reach them, and stops them at last.

    Raises:
        LightstreamError: a part could not be started.
    """
    console.print("Starting Kafka, the worker, the view, the policy server and the LLM proxy …")
    settings = settings.model_copy(update={"instrument": "none"})  # the proxy records every call
    with Stack(settings, services=("worker", "view", "policy", "proxy")) as stack:
        yield stack.settings
        console.print("Stopping …")


def has_learned(settings: Settings, console: Console, run_id: str, *, title: str, reward_min: float) -> bool:
    """Show a run's curve, in ``reward.png`` too, and its account.

    Returns:
        Whether the last five steps have that mean reward, and nothing was lost.
    """
    view = ViewClient(settings)
    picture = settings.data_dir / "reward.png"
    curve, is_balanced = show_result(view, run_id, console, picture=picture, title=f"{title}: mean reward of each step")
    view.close()
    checks = {
        f"mean reward of the last five steps at least {reward_min}: {curve.last:.3f}": curve.last >= reward_min,
        ACCOUNTED: is_balanced,
    }
    return show_checks(console, checks)
