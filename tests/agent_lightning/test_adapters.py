"""Our adapters make of random traces what Agent Lightning's do, but where we say that they do not."""

from __future__ import annotations

import os

import pytest

from .side_by_side import differences
from .traces import proxy_trace, trace

pytestmark = pytest.mark.agent_lightning

TRACES = int(os.environ.get("LIGHTSTREAM_TEST_EXAMPLES", "400"))


def test_random_traces_have_the_same_trees_triplets_and_conversations() -> None:
    found = differences("adapters", [trace(seed) for seed in range(TRACES)])
    assert not found, "\n".join(found)


def test_what_a_proxy_recorded_has_the_same_triplets() -> None:
    found = differences("adapters", [proxy_trace(seed) for seed in range(TRACES)])
    assert not found, "\n".join(found)
