"""The table of VERL's options: ``python -m lightstream.trainers.algorithms.options_document docs/training.md``."""

from __future__ import annotations

import sys
from pathlib import Path

from ..run.option import options_as_markdown
from .verl import VERL

BEGIN = "<!-- The options, as they are declared: written by `make docs`. -->\n"
END = "<!-- End of the options. -->\n"

CONFIG = "| `config` | none | verl's own configuration ([below](#verls-own-configuration)) |\n"
"""It is no option itself, but has some of them."""


def with_options(page: str) -> str:
    """Return a page with the table between its two marks made anew.

    Raises:
        ValueError: the page does not have the marks.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page needs the marks {BEGIN!r} and {END!r}")
    return f"{before}{begin}\n{options_as_markdown(VERL)}{CONFIG}\n{end}{after}"


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(with_options(file.read_text("utf-8")), "utf-8")
