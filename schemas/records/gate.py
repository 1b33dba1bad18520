"""Reports of the gate: the tests that a model passed, or not, before a share of the calls is given to it."""

from __future__ import annotations

from pydantic import Field

from ._base import Record, RecordEnum


class GateOutcome(RecordEnum):
    """The gate's decision. ``undecided``: it could not be told, and nothing may be released on it."""

    UNKNOWN = "unknown"
    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"


class GateCheckKind(RecordEnum):
    """The question of a check.

    ``not_worse``: is the mean at most a margin below the stable model's? ``better``: is it higher? ``guard``: has a
    figure that ought to stay low not grown too much?
    """

    UNKNOWN = "unknown"
    NOT_WORSE = "not_worse"
    BETTER = "better"
    GUARD = "guard"


class GateCheck(Record):
    """One check: a figure of a set, by its mean over the tasks."""

    task_set: str
    """Set of tasks that the figure is of."""
    figure: str
    """``reward``, ``cost``, ``length``, ``tool_errors``, ``refusals``, ``latency`` or ``failed``."""
    kind: GateCheckKind
    """``not_worse``, ``better`` or ``guard``."""
    tasks: int = Field(ge=0)
    """Number of tasks that both models answered."""
    stable_mean: float
    """Mean of the stable model."""
    candidate_mean: float
    """Mean of the candidate."""
    limit: float
    """Of rewards: least difference of the means. Of a guard: greatest mean that the candidate may have."""
    probability: float
    """Probability of such figures by chance, were the candidate exactly at the limit (one-sided permutation test)."""
    passed: bool
    """Whether the probability is at most the gate's error rate."""


class GateSet(Record):
    """A set of tasks that both models answered."""

    name: str
    """Name of the set; ``traffic`` for a sample of the traffic."""
    run_id: str
    """Run of its rollouts."""
    digest: str
    """Digest of its tasks (12 hex digits)."""
    tasks: int = Field(ge=0)
    """Number of its tasks."""
    trained: int = Field(default=0, ge=0)
    """Number of its tasks that the candidate's run was trained on: a leak, unless the set is of the traffic."""


class GateReport(Record):
    """``releases``: a candidate was compared with the stable model of a release."""

    report_id: str = Field(min_length=1)
    """Id of the report, by which changes of the release name it."""
    release: str = Field(min_length=1)
    """Name of the release."""
    stable: str
    """Model that it was compared with."""
    candidate: str
    """Model that was judged."""
    outcome: GateOutcome
    """``passed``, ``failed`` or ``undecided``."""
    error_rate: float
    """Greatest probability with which a candidate that should fail a check passes."""
    checks: list[GateCheck] = Field(default_factory=list[GateCheck])
    """The checks, all of which must pass."""
    sets: list[GateSet] = Field(default_factory=list[GateSet])
    """The sets of tasks."""
    notes: list[str] = Field(default_factory=list[str])
    """Why it is undecided, and which figures could not be checked, in words."""
    by: str = ""
    """Who asked."""
    created_unix_nano: int
    """Time at which the report was made."""
