"""``lightstream doctor``: looks for faults that keep a system from working, or will one day; changes nothing."""

from .all_checks import CHECKS, findings
from .command import run_doctor
from .finding import Finding, Level

__all__ = ["CHECKS", "Finding", "Level", "findings", "run_doctor"]
