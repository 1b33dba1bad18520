"""The end of an example: its curve, its account, and whether what it promises holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.text import Text

from lightstream.trainers import ViewClient

from .account import take_account
from .curve import LearningCurve, read_curve

__all__ = ["show_checks", "show_result"]


def show_result(
    view: ViewClient, run_id: str, console: Console, *, picture: Path, title: str
) -> tuple[LearningCurve, bool]:
    """Print the curve and the account of a run; returns the curve, and whether everything is accounted for.

    Args:
        view: the system's, which the example has started.
        picture: where the curve is drawn (PNG).
        title: above it.
    """
    curve, account = read_curve(view, run_id), take_account(view)
    console.print(Text(curve.text()), no_wrap=True, crop=False)
    console.print(f"The curve as a picture: {curve.save_png(picture, title=title)}")
    console.print(account.table())
    return curve, account.is_balanced


def show_checks(console: Console, checks: Mapping[str, bool]) -> bool:
    """Print each with yes or NO; returns whether all hold."""
    for name, holds in checks.items():
        console.print(f"{'[green]yes[/green]' if holds else '[red]NO [/red]'}  {name}")
    return all(checks.values())
