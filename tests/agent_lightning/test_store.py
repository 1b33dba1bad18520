"""Our store answers random programs as Agent Lightning's does, but where we say that it does not."""

from __future__ import annotations

import os

import pytest

from .programs import program
from .side_by_side import differences

pytestmark = pytest.mark.agent_lightning

PROGRAMS = int(os.environ.get("LIGHTSTREAM_TEST_EXAMPLES", "200"))
CALLS = 80

MORE_HERE = frozenset({"attempt"})
"""Where a rollout was updated or waited for, ours tells of its attempt too."""


def test_random_programs_have_the_same_answers() -> None:
    found = differences("calls", [program(seed, CALLS) for seed in range(PROGRAMS)], MORE_HERE)
    assert not found, "\n".join(found)
