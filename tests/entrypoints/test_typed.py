"""Type checkers see the types of the package."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_the_package_says_that_it_is_typed() -> None:
    names = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["tool"]["importlinter"]["root_packages"]
    assert names
    untyped = [name for name in names if not (Path(import_module(name).__file__ or "").parent / "py.typed").is_file()]
    assert untyped == []
