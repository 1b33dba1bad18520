"""The report of ``lightstream doctor``."""

from __future__ import annotations

import json
from dataclasses import asdict

from rich.console import Console
from rich.markup import escape

from lightstream.runtime.settings import Settings

from ..formats import Format
from .all_checks import findings
from .finding import Level

console = Console(highlight=False)

SIGNS = {Level.FINE: "[green]✓[/]", Level.WARNING: "[yellow]![/]", Level.ERROR: "[red]✗[/]"}


def run_doctor(settings: Settings, output: Format) -> int:
    """Print the findings, each with its next step.

    Returns:
        The exit status: 1 if something does not work, else 0.
    """
    found = []
    for one in findings(settings):
        found.append(one)
        if output is Format.TABLE:
            step = f"\n    {escape(one.next_step)}" if one.next_step and one.level is not Level.FINE else ""
            console.print(f"{SIGNS[one.level]} {one.check}: {escape(one.text)}{step}", soft_wrap=True)
    if output is Format.JSON:
        print(json.dumps([asdict(one) for one in found], indent=2))
    else:
        counts = {level: sum(one.level is level for one in found) for level in Level}
        console.print(f"{counts[Level.ERROR]} errors, {counts[Level.WARNING]} warnings")
    return int(any(one.level is Level.ERROR for one in found))
