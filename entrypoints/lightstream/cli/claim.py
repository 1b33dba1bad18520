"""``lightstream claim``: a trace becomes part of a rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from lightstream.schemas.settings import Settings

from .load import load

if TYPE_CHECKING:
    from lightstream.store_views.claim import Claim

__all__ = ["run_claim"]

console = Console(highlight=False)


def run_claim(settings: Settings, trace_id: str, rollout_id: str, attempt_id: str | None) -> None:
    """Claim, and print what follows from it.

    Raises:
        NotFoundError, StoreError: there is no such trace or attempt, or the trace belongs to another.
        PublishError, ServiceUnavailableError: Kafka or the view did not answer.
    """
    done: Claim = load("lightstream.store_views.claim", "claim")(settings, trace_id, rollout_id, attempt_id)
    whom = f"attempt {escape(done.attempt_id)} of rollout {escape(done.rollout_id)}"
    if not done.spans:
        console.print(f"All spans of trace {done.trace_id} belong to {whom} already.", soft_wrap=True)
        return
    console.print(f"{done.spans} spans of trace {done.trace_id} now belong to {whom}.", soft_wrap=True)
    if done.is_open:
        console.print("Its trajectory will have them. Claim again for spans that come later.", soft_wrap=True)
    else:
        console.print("The attempt is over: a revision of its trajectory has them, unless it began too long ago.")
