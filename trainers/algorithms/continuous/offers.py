"""A learner's new versions as candidates of a release."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from lightstream.runtime.releases import ReleaseLog
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import NotFoundError, StoreError
from lightstream.schemas.records import GateOutcome, GateReport, ReleaseChanged
from lightstream.schemas.releases import offer


class OffersGate(Protocol):
    """Judges a candidate; blocks."""

    def __call__(self, release: str, stable: str, candidate: str, /) -> GateReport:
        """Return the report, once it is in the log."""
        ...


class Offers:
    """Offers versions to a release. Blocks.

    Args:
        share: share of the keys that a candidate gets.
        gate: judges a version before it is offered; ``None``: nobody does, and the record says so.
        say: is told what was done, in a line.
    """

    def __init__(
        self, settings: Settings, release: str, *, share: float, gate: OffersGate | None, say: Callable[[str], None]
    ) -> None:
        self._log = ReleaseLog(settings)
        self._release = release
        self._share = share
        self._gate = gate
        self._say = say

    def is_paused(self) -> bool:
        """Whether learning is to stop.

        Raises:
            NotFoundError: there is no such release.
        """
        return self._state().paused

    def offer(self, version: str) -> None:
        """Offer a version, unless it was offered before, another candidate is being tried, or the gate refuses it."""
        state = self._state()
        offered = any(change.candidate == version for change in self._log.history(self._release))
        if offered or state.candidate is not None or state.paused or state.stable == version:
            return
        report_id: str | None = None
        if self._gate is not None:
            report = self._gate(self._release, state.stable, version)
            if report.outcome is not GateOutcome.PASSED:
                self._say(f"The gate says {report.outcome} of {version}: report {report.report_id}.")
                return
            report_id = report.report_id
        wish = partial(offer, candidate=version, share=self._share, report_id=report_id)
        try:
            self._log.change(self._release, ("learner", "a window was learned from"), wish)
        except StoreError as error:  # somebody changed the release meanwhile; the next version may be offered
            self._say(f"{version} is not offered: {error.message}")
            return
        self._say(f"{version} is a candidate of {self._release}.")

    def _state(self) -> ReleaseChanged:
        state = self._log.states().get(self._release)
        if state is None:
            raise NotFoundError(
                f"there is no release {self._release!r:.200}.",
                next_step="Make it: `lightstream release set NAME --stable MODEL`.",
            )
        return state
