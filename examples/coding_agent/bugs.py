"""The bugs: functions that compute with the wrong operator, and a test that tells."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from itertools import product
from typing import TypedDict

__all__ = ["FUNCTIONS", "OPERATORS", "Bug", "bugs", "line_of", "passes", "text_of"]

OPERATORS = "+-*/"
FUNCTIONS = {"total": "+", "change": "-", "area": "*", "share": "/"}
"""Function -> the operator that it should have."""

RESULTS = {"+": 8, "-": 4, "*": 12, "/": 3}
"""Operator -> what it makes of 6 and 2."""

TEST_TIMEOUT_S = 60.0


class Bug(TypedDict):
    """A file, as its function, the line that is in it, and its test."""

    function: str
    line: str
    test: str


def line_of(operator: str) -> str:
    """The one line of a function's body."""
    return f"return a {operator} b"


def bugs() -> list[Bug]:
    """Each function with each operator that is wrong."""
    return [
        Bug(function=function, line=line_of(wrong), test=f"assert {function}(6, 2) == {RESULTS[right]}")
        for (function, right), wrong in product(FUNCTIONS.items(), OPERATORS)
        if wrong != right
    ]


def text_of(bug: Bug, line: str) -> str:
    """The file, with this line in it."""
    return f"def {bug['function']}(a, b):\n    {line}\n\n{bug['test']}\n"


@cache
def passes(text: str) -> bool:
    """Run the file, in a Python of its own; a file that was run before is as it was."""
    run = subprocess.run([sys.executable, "-I", "-c", text], capture_output=True, check=False, timeout=TEST_TIMEOUT_S)
    return run.returncode == 0
