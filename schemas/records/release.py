"""Releases: the names that agents ask for, and the model versions that serve them."""

from __future__ import annotations

from pydantic import Field, model_validator

from ._base import Record, RecordEnum


class ReleaseAction(RecordEnum):
    """A change of a release."""

    UNKNOWN = "unknown"
    SET = "set"
    OFFERED = "offered"
    SHARE = "share"
    PROMOTED = "promoted"
    ROLLED_BACK = "rolled_back"
    PAUSED = "paused"
    RESUMED = "resumed"


class ReleaseKey(RecordEnum):
    """The value that keeps a caller on its arm of a release."""

    UNKNOWN = "unknown"
    SESSION = "session"
    USER = "user"
    ROLLOUT = "rollout"


class ReleaseRule(Record):
    """A rule that rolls a candidate back."""

    name: str = Field(min_length=1)
    """Name of the rule."""
    sql: str = Field(min_length=1)
    """``SELECT`` over the view. It returns rows when the candidate must go."""


class ReleaseChanged(Record):
    """``releases``: a change of a release, with the whole state after it. Key: ``release``.

    Of a release's records with the same ``revision`` the first counts: the others lost a race, and changed nothing.
    """

    release: str = Field(min_length=1)
    """Name that agents ask for as ``model``."""
    revision: int = Field(ge=1)
    """Number of the change, from 1. Its writer had read the one before it."""
    action: ReleaseAction
    """``set``, ``offered``, ``share``, ``promoted``, ``rolled_back``, ``paused`` or ``resumed``."""
    stable: str = Field(min_length=1)
    """Model that serves the release."""
    candidate: str | None = None
    """Model that serves ``share`` of the keys; ``None`` where there is none."""
    previous: str | None = None
    """Stable model before this one, to which a rollback without a candidate returns; ``None``: there is none."""
    share: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of the keys that the candidate serves, 0 to 1."""
    key: ReleaseKey = ReleaseKey.SESSION
    """``session``, ``user`` or ``rollout``: keeps a caller on its arm."""
    paused: bool = False
    """``stable`` serves every call, no candidate may be offered, and learning stops."""
    rules: list[ReleaseRule] = Field(default_factory=list[ReleaseRule])
    """Rules that roll a candidate back."""
    offered_unix_nano: int | None = None
    """Time at which the candidate was offered; ``None`` without one."""
    by: str = ""
    """Part that made the change: ``command line``, ``page``, ``rule <name>`` or ``learner``, with its user."""
    reason: str = ""
    """Reason for the change, in words."""
    report_id: str | None = None
    """Report of the gate that allowed the candidate; ``None``: nobody asked the gate."""
    changed_unix_nano: int
    """Time of the change."""

    @model_validator(mode="after")
    def _arms_differ(self) -> ReleaseChanged:
        if self.candidate == self.stable:
            raise ValueError(f"release {self.release!r}: candidate and stable are both {self.stable!r}")
        return self
