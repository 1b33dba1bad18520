"""Each example to its end: it says yes to all that it promises, with nothing lost (``make test-examples``)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lightstream.runtime.processes import child_environment
from lightstream.runtime.settings import Settings
from tests.support.processes import processes_of
from tests.support.waiting import eventually

pytestmark = [pytest.mark.examples, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
EXAMPLES = (
    "coding_agent",
    "export_for_sft",
    "grpo_in_twenty_lines",
    "production",
    "rag",
    "room_selector",
    "sft_then_grpo",
    "slow_tools",
    "text_to_sql",
    "tool_agent",
    "trackers",
    "twenty_questions",
    "two_adapters",
    "two_calls",
)


@pytest.mark.parametrize("example", EXAMPLES)
def test_it_reaches_what_it_promises(example: str, settings: Settings) -> None:
    data_dir = settings.data_dir / example
    done = subprocess.run(
        [sys.executable, "-m", f"examples.{example}", "--data-dir", str(data_dir)],
        cwd=ROOT,
        env=child_environment(settings) | {"COLUMNS": "160"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line.strip() for line in done.stdout.split("\n")]
    assert any(line.startswith("yes") for line in said), done.stdout
    assert not any(line.startswith("NO ") for line in said), done.stdout
    eventually(lambda: not processes_of(data_dir), what="no process is left")
    pictures = list(data_dir.glob("*.png"))
    assert pictures or example == "two_calls", "its curve"
    assert all(picture.stat().st_size for picture in pictures)
