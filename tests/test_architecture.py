"""ARCHITECTURE.md names files that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_each_file_that_a_walk_names_exists_once_at_least() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    walks = text.split("\n## Five walks\n")[1].split("\n## ")[0]
    named = re.findall(r"`([\w/]+\.py)`", walks)
    files = [str(path.relative_to(ROOT)) for path in ROOT.glob("*/lightstream/**/*.py")]
    assert len(named) > 50
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in files)] == []
