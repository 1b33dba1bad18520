"""Files of JSON lines."""

from __future__ import annotations

import json
from pathlib import Path

from lightstream.store_views.exports import write_json_lines


def test_text_that_is_no_unicode_ends_no_export(tmp_path: Path) -> None:
    """A request's body is kept as the agent sent it, and may quote text that was cut within a character."""
    path = tmp_path / "lines.jsonl"
    assert write_json_lines([{"content": "cut \ud83d"}, {"content": "whole \U0001f600"}], path) == 2
    lines = path.read_text("utf-8").splitlines()
    assert [json.loads(line)["content"] for line in lines] == ["cut ?", "whole \U0001f600"]
