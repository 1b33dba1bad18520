"""A copy of the packages as a later version: every record has one more field, and so a next schema."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

from lightstream.schemas.distribution import installed_version
from lightstream.schemas.topics import TOPICS

ROOT = Path(__file__).parents[2]
RELEASED, LATER = "8.0.0", "9.0.0.dev0"
FIELD = '    added_later: str = "by a later version"\n    """A field of a later version."""\n'


def write_later_tree(folder: Path) -> None:
    """Write the tree, with the schemas and examples that ``make schemas`` makes of it."""
    left_out = shutil.ignore_patterns("__pycache__", "dashboard", "page")
    shutil.copytree(ROOT / "lightstream", folder / "lightstream", ignore=left_out)
    about = _install_as(folder, RELEASED)
    _write_files(folder, "--release")  # what is here now may not change any more
    shutil.rmtree(about)
    records = {record.__name__ for topic in TOPICS for record in topic.records}
    for file in (folder / "lightstream/schemas/records").glob("*.py"):
        _add_fields(file, records)
    _install_as(folder, LATER)
    _write_files(folder)
    assert installed_version() != LATER


def _install_as(folder: Path, version: str) -> Path:
    """Make the tree that version; returns what says so."""
    about = folder / f"lightstream_rl-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: lightstream-rl\nVersion: {version}\n", "utf-8")
    return about


def _write_files(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "lightstream.schemas.codec.write_files", *arguments]
    subprocess.run(command, env=os.environ | environment(folder), check=True, capture_output=True)


def environment(folder: Path) -> dict[str, str]:
    """What a process has in its environment to run that tree."""
    return {"PYTHONPATH": os.pathsep.join(map(str, (folder, ROOT))), "PYTHONSAFEPATH": "1"}  # not the working folder's


def _add_fields(file: Path, records: set[str]) -> None:
    lines = file.read_text("utf-8").splitlines(keepends=True)
    for node in reversed(ast.parse("".join(lines)).body):
        if isinstance(node, ast.ClassDef) and node.name in records:
            lines.insert(node.end_lineno or 0, FIELD)
    file.write_text("".join(lines), "utf-8")
