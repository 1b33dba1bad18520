"""The command that a message names installs extras from the place that this installation came from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lightstream.schemas.distribution import install_hint


@pytest.mark.parametrize(
    ("origin", "argument"),
    [
        (None, '"lightstream-rl[view,store]"'),
        ({"url": "file:///src/a%20b", "dir_info": {"editable": True}}, '--editable "/src/a b[view,store]"'),
        ({"url": "file:///src/here", "dir_info": {}}, '"/src/here[view,store]"'),
        ({"url": "file:///dist/a.whl", "archive_info": {}}, '"lightstream-rl[view,store] @ file:///dist/a.whl"'),
        (
            {"url": "https://example.com/a.git", "vcs_info": {"vcs": "git", "commit_id": "4f2a"}},
            '"lightstream-rl[view,store] @ git+https://example.com/a.git@4f2a"',
        ),
    ],
    ids=["index", "editable", "folder", "file", "repository"],
)
def test_the_hint_names_the_origin_of_this_installation(
    origin: dict[str, Any] | None, argument: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    about = tmp_path / "lightstream_rl-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: lightstream-rl\nVersion: 1\n", "utf-8")
    if origin is not None:
        (about / "direct_url.json").write_text(json.dumps(origin), "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert install_hint("view", "store") == f"`pip install {argument}`"
