"""Offers a learner's new versions to a release, through its gate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from lightstream.runtime.releases import ReleaseLog
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError, StoreError
from lightstream.schemas.records import GateOutcome, GateReport, ReleaseChanged, ResourcesRecord
from lightstream.schemas.releases import Author, Release, offer

BY = "learner"


class Gate(Protocol):
    """Judges a candidate; :class:`lightstream.trainers.evaluation.Gate` is one."""

    def __call__(self, release: str, stable: str, candidate: str, *, stop: Callable[[], bool]) -> GateReport:
        """Blocks until the report is in the log. The same question has the same report.

        Raises:
            StoppedError: ``stop``, which it asks while it waits, said so.
        """
        ...


@dataclass(slots=True)
class Releasing:
    """The release that a learner's versions go to. All calls block.

    The log has its state: which versions were offered, and which reports there are. So a learner that was killed
    between a version and its offer makes the offer when it is started again, and no version is offered twice.

    Attributes:
        gate: judges each version before it is offered; ``None``: nobody does, and the offers say so.
        share: of the keys, for a new candidate.
        say: told the outcome of each version.
    """

    settings: Settings
    release: str
    gate: Gate | None
    share: float
    say: Callable[[str], None]
    _done: set[str] = field(default_factory=set[str])

    def is_paused(self) -> bool:
        """Whether the release is paused, so that nothing may be learned now.

        Raises:
            SettingsError: there is no such release.
            ServiceUnavailableError: Kafka does not answer.
        """
        return self._history()[-1].paused

    def consider(self, newest: ResourcesRecord, run_id: str, stop: Callable[[], bool]) -> None:
        """Offer the newest version, if it was not offered before, no other candidate is on trial, and it passes.

        Raises:
            StoppedError: ``stop`` said so while the gate waited; the next process asks again.
            SettingsError: there is no such release.
            ServiceUnavailableError: Kafka, or a part that the gate needs, does not answer.
        """
        model = f"{run_id}@{newest.version}"
        if newest.version == 0 or model in self._done:
            return
        history = self._history()
        state = history[-1]
        failed_before = any(
            report.candidate == model and report.outcome is GateOutcome.FAILED
            for report in ReleaseLog(self.settings).reports(self.release)
        )
        if failed_before or any(model in (past.stable, past.candidate) for past in history):
            self._done.add(model)
            return
        if state.paused or state.candidate is not None:
            return  # the next window asks again, with the newest version of then
        report = None if self.gate is None else self.gate(self.release, state.stable, model, stop=stop)
        if report is None or report.outcome is not GateOutcome.UNDECIDED:
            self._done.add(model)
        if report is not None and report.outcome is not GateOutcome.PASSED:
            failed = [f"{check.task_set} {check.figure} ({check.kind})" for check in report.checks if not check.passed]
            self.say(
                f"{model} is not offered to {self.release}: {report.outcome}; {', '.join(failed or report.notes)}."
            )
            return
        reason = "no gate was asked" if report is None else f"passed the gate, report {report.report_id}"

        def wish(release: Release, author: Author) -> ReleaseChanged:
            if release.state is None or release.state.revision != state.revision:
                raise StoreError(f"release {self.release!r} was changed while {model} was judged.")
            report_id = None if report is None else report.report_id
            return offer(release, author, model, self.share, report_id=report_id)

        try:
            ReleaseLog(self.settings).change(self.release, (BY, reason), wish)
        except StoreError as error:
            self._done.discard(model)  # the next window asks again
            self.say(f"{model} is not offered to {self.release} yet: {error}")
            return
        self.say(f"{model} is offered to {self.release} with a share of {self.share:g}: {reason}.")

    def _history(self) -> list[ReleaseChanged]:
        history = ReleaseLog(self.settings).history(self.release)
        if not history:
            raise SettingsError(
                f"there is no release {self.release!r}.",
                next_step=f"Name its stable model: lightstream release set {self.release} --stable MODEL.",
            )
        return history
