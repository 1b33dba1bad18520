"""A command whose packages are not installed says which extra brings them."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path

import pytest

from lightstream import cli
from lightstream.runtime.processes import child_environment
from lightstream.runtime.settings import Settings
from lightstream.schemas.distribution import DISTRIBUTION, install_hint

WITHOUT = "import sys; sys.modules[sys.argv.pop(1)] = None; from lightstream.cli import main; main()"
"""The command line where the package that the first argument names is not installed."""


def needed_extras() -> set[str]:
    """Return what commands pass to ``needs``."""
    extras: set[str] = set()
    for file in Path(cli.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "needs":
                extras |= {ast.literal_eval(argument) for argument in node.args}
    return extras


def test_each_extra_that_a_command_names_is_there() -> None:
    assert {"view", "train"} <= needed_extras() <= set(metadata(DISTRIBUTION).get_all("Provides-Extra") or [])


@pytest.mark.parametrize(
    ("package", "extra", "command"),
    [
        ("numpy", "train,view", ["export", "torch", "batch.pt"]),
        ("torch", "train,view", ["export", "torch", "batch.pt"]),
        ("duckdb", "view", ["sql", "SELECT 1"]),
        ("httpx", "view", ["sql", "SELECT 1"]),
    ],
)
def test_a_package_that_is_not_installed_is_named_with_its_extra(
    package: str, extra: str, command: list[str], tmp_path: Path
) -> None:
    environment = child_environment(Settings.load(data_dir=tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, package, *command],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"the package '{package}' is not installed" in done.stderr
    assert install_hint(*extra.split(",")) in done.stderr
    assert "Traceback" not in done.stderr
