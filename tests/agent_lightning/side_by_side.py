"""One script in two environments: Agent Lightning's and ours."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("LIGHTSTREAM_TEST_AGENT_LIGHTNING_PYTHON", ROOT / ".venv-agent-lightning/bin/python"))
"""The interpreter of the environment in which Agent Lightning is installed."""


def answers(script: str, given: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The script's answers to ``given``: with Agent Lightning, and with ours.

    Args:
        script: name of a module beside this one, run with the package's name as its argument. It reads a list from
            standard input and prints the answer to each of its items on a line, all of it JSON.
    """
    assert PYTHON.exists(), f"there is no {PYTHON}: run `make test-agent-lightning`"
    return asyncio.run(_both(script, given))


def differences(script: str, given: Sequence[Any], more_here: frozenset[str] = frozenset()) -> list[str]:
    """Differences of the script's answers to ``given``: of each the first place, as text.

    Args:
        script, given: as for :func:`answers`.
        more_here: what ours may tell in addition.
    """
    theirs, ours = answers(script, given)
    found = (_difference(there, here, more_here, "") for there, here in zip(theirs, ours, strict=True))
    return [f"{number}{text}" for number, text in enumerate(found) if text is not None]


def _difference(there: Any, here: Any, more_here: frozenset[str], place: str) -> str | None:
    """The first difference, with the place where it is."""
    pairs: list[tuple[str, Any, Any]]
    if isinstance(there, dict) and isinstance(here, dict) and here.keys() - there.keys() <= more_here:
        pairs = [(f"{place}.{name}", value, here.get(name, "(not told)")) for name, value in there.items()]
    elif isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        pairs = [(f"{place}[{i}]", *pair) for i, pair in enumerate(zip(there, here, strict=True))]
    else:
        return None if there == here else f"{place}\n  there: {there}\n  here:  {here}"
    found = (_difference(of_theirs, of_ours, more_here, where) for where, of_theirs, of_ours in pairs)
    return next((text for text in found if text is not None), None)


async def _both(script: str, given: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Their answers and ours: at the same time, each in its own process."""
    return await asyncio.gather(
        _answers(str(PYTHON), script, "agentlightning", given),
        _answers(sys.executable, script, "lightstream.agl", given),
    )


async def _answers(python: str, script: str, package: str, given: Sequence[Any]) -> list[Any]:
    process = await asyncio.create_subprocess_exec(
        python,
        "-m",
        f"{__package__}.{script}",
        package,
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    )
    printed, _ = await process.communicate(json.dumps(given).encode())
    assert process.returncode == 0, f"{script} with {package} ended with {process.returncode}"
    return [json.loads(line) for line in printed.splitlines()]
