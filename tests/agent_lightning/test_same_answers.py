"""Our store answers random programs as Agent Lightning's does, but where we say that it does not."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from .programs import Call, program

pytestmark = pytest.mark.agent_lightning

PYTHON = Path(
    os.environ.get(
        "LIGHTSTREAM_TEST_AGENT_LIGHTNING_PYTHON", Path(__file__).parents[2] / ".venv-agent-lightning/bin/python"
    )
)

PROGRAMS = int(os.environ.get("LIGHTSTREAM_TEST_EXAMPLES", "200"))
CALLS = 80

# Where a rollout was updated, waited for or listed, ours tells of its attempt too.
MORE_HERE = {"attempt"}


def test_random_programs_have_the_same_answers() -> None:
    assert PYTHON.exists(), f"there is no {PYTHON}: run `make test-agent-lightning`"
    programs = [program(seed, CALLS) for seed in range(PROGRAMS)]
    theirs, ours = asyncio.run(both(str(PYTHON), programs))
    differing = [
        (seed, place, call, there, here)
        for seed, calls in enumerate(programs)
        for place, (call, there, here) in enumerate(zip(calls, theirs[seed], ours[seed], strict=True))
        if not same(there, here)
    ]
    first = {seed: found for found in reversed(differing) for seed in found[:1]}  # what follows it may follow from it
    assert not first, "\n".join(
        f"program {seed}, call {place}: {call}\n  there: {there}\n  here:  {here}"
        for seed, place, call, there, here in first.values()
    )


def same(there: Any, here: Any) -> bool:
    """Whether ours says what theirs says, and nothing that contradicts it."""
    if isinstance(there, dict) and isinstance(here, dict):
        return here.keys() - there.keys() <= MORE_HERE and all(
            name in here and same(value, here[name]) for name, value in there.items()
        )
    if isinstance(there, list) and isinstance(here, list):
        return len(there) == len(here) and all(map(same, there, here))
    return bool(there == here)


async def both(python: str, programs: list[list[Call]]) -> tuple[list[list[Any]], list[list[Any]]]:
    """Their answers and ours: at the same time, each in its own process."""
    return await asyncio.gather(
        answers(python, "agentlightning", programs), answers(sys.executable, "lightstream.agl", programs)
    )


async def answers(python: str, package: str, programs: list[list[Call]]) -> list[list[Any]]:
    """What the store of ``package`` answers, one list for each program."""
    interpreter = Path(__file__).with_name("interpreter.py")
    process = await asyncio.create_subprocess_exec(
        python,
        str(interpreter),
        package,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"AGENTOPS_API_KEY": "", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    )
    written, _ = await process.communicate(json.dumps(programs).encode())
    assert process.returncode == 0, f"{package} ended with {process.returncode}"
    return [json.loads(line) for line in written.splitlines()]
