"""Shows a run to a person: a live screen while it trains, a curve and an account when it is over."""

from .account import Account, take_account
from .curve import LearningCurve, read_curve
from .result import show_checks, show_result
from .screen import render
from .snapshot import Snapshot, take_snapshot

__all__ = [
    "Account",
    "LearningCurve",
    "Snapshot",
    "read_curve",
    "render",
    "show_checks",
    "show_result",
    "take_account",
    "take_snapshot",
]
