"""What a policy kernel reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from lightstream.schemas.errors import LightstreamError

__all__ = ["PolicyViolation", "PolicyViolationError"]

PENALTIES = {"critical": -100.0, "high": -50.0, "medium": -10.0, "low": -1.0}
"""Those of Agent Lightning's contribution for Agent-OS. ``LIGHTSTREAM_AUTOMATIC_REWARDS`` prices them."""

PENALTY_OF_OTHERS = PENALTIES["medium"]


@dataclass(frozen=True, slots=True)
class PolicyViolation:
    """One violation.

    Attributes:
        policy_name: which policy was violated.
        description: how, for a reader.
        severity: ``critical``, ``high``, ``medium`` or ``low``; a kernel may have others.
        blocked: whether the kernel blocked it.
        timestamp: when it was reported.
    """

    policy_name: str
    description: str
    severity: str
    blocked: bool
    timestamp: datetime = field(default_factory=lambda: datetime.now(UTC), compare=False)

    @property
    def penalty(self) -> float:
        """What it costs by its severity, 0 or less."""
        return PENALTIES.get(self.severity, PENALTY_OF_OTHERS)


class PolicyViolationError(LightstreamError):
    """An attempt failed because its kernel blocked what the agent did.

    Attributes:
        violation: the first that was blocked.
    """

    def __init__(self, violation: PolicyViolation) -> None:
        super().__init__(
            f"policy {violation.policy_name!r} ({violation.severity}) was violated and the agent blocked: "
            f"{violation.description}"
        )
        self.violation = violation

    def __reduce__(self) -> tuple[type[PolicyViolationError], tuple[PolicyViolation]]:
        return type(self), (self.violation,)
