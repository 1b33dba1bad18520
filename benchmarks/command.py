"""A benchmark's command line: its counts as options, its figures as a table or as JSON."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Mapping


def run(description: str | None, measure: Callable[..., Mapping[str, float]], **counts: int) -> None:
    """Measure and print.

    Args:
        description: the module's docstring.
        measure: called with the counts; gives figure -> value.
        counts: name and default of each whole number that the command line can set.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    for name, default in counts.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{default:,} by default")
    arguments = vars(parser.parse_args())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that what it started is stopped
    as_json = arguments.pop("json")
    figures = measure(**arguments)
    if as_json:
        print(json.dumps(figures))
        return
    width = max(map(len, figures), default=0)
    for name, value in figures.items():
        print(f"{name:<{width}} {value:>14,.3f}")
