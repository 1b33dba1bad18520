"""Our search for prompts finds what Agent Lightning's finds of the same answers, and asks no more often."""

from __future__ import annotations

from typing import Any

import pytest

from .searches import PLANTED
from .side_by_side import answers

pytestmark = pytest.mark.agent_lightning

OPTIONS = {"beam_width": 1, "branch_factor": 2, "gradient_batch_size": 2, "val_batch_size": 2}
SEARCHES: list[dict[str, Any]] = [{"useless": 3, "options": OPTIONS | {"beam_rounds": 3}}]
"""One is a minute: theirs looks every two seconds whether rollouts are over, and starts Node for each instruction."""


def test_the_planted_prompt_is_found_with_no_more_calls() -> None:
    for search, theirs, ours in zip(SEARCHES, *answers("searches", SEARCHES), strict=True):
        assert theirs["found"] == ours["found"] == list(PLANTED), search
        assert ours["asked"] <= theirs["asked"], search
