"""The example with two LLM calls a rollout."""

from __future__ import annotations

from lightstream.runtime.settings import Settings
from tests.examples.programs import cells, run


def test_two_calls(settings: Settings) -> None:
    output = run("two_calls", settings, "--steps", "1", "--groups", "2", "--samples", "2")
    assert "step 1 of 1: 4 rollouts, 8 calls" in output
    assert cells(output, "LLM calls made")[1] == cells(output, "in triplets")[1] == "8"
    shown = [line.split("│")[1].strip() for line in output.splitlines() if line.startswith("│")][:3]
    assert shown == ["chat.completion", "tool", "chat.completion"]
