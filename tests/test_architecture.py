"""ARCHITECTURE.md names files that are there."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINKS = {path.name: path.resolve() for path in (ROOT / "lightstream").iterdir() if path.is_symlink()}
"""Package within ``lightstream`` -> the folder that its link leads to."""


def _files() -> list[Path]:
    """Python files of the product."""
    return [path for folder in LINKS.values() for path in folder.rglob("*.py") if "node_modules" not in path.parts]


def test_packages_are_imported_by_one_name() -> None:
    """The root of a checkout is on the path, so ``import schemas`` would work, and make each class a second time."""
    named = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(LINKS)}|entrypoints)\b", re.MULTILINE)
    files = [*_files(), *(path for name in ("tests", "examples", "benchmarks") for path in (ROOT / name).rglob("*.py"))]
    assert len(files) > 1000
    assert [str(path.relative_to(ROOT)) for path in files if named.search(path.read_text("utf-8"))] == []


def test_each_file_that_a_walk_names_exists_once_at_least() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    walks = text.split("\n## Five walks\n")[1].split("\n## ")[0]
    named = re.findall(r"`([\w/]+\.py)`", walks)
    files = [str(path.relative_to(ROOT)) for path in _files()]
    assert len(named) > 50
    assert [name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in files)] == []


def test_only_the_package_of_agent_lightning_names_its_first_protocol() -> None:
    """It is plugged in, by an entry point: the rest of the product works without it."""
    named = re.compile(
        r"first (protocol|interface)|\b0\.1 (protocol|interface)|RolloutLegacy|TaskIfAny|GenericResponse"
        r"|AgentLightning(Client|Server)|lightstream\.agl|\"/(task|rollout)\""
    )
    own = ROOT / "entrypoints" / "agl"
    files = [path for path in _files() if own not in path.parents]
    assert len(files) > 500
    assert len([path for path in own.rglob("*.py") if named.search(path.read_text("utf-8"))]) > 5
    assert [str(path.relative_to(ROOT)) for path in files if named.search(path.read_text("utf-8"))] == []


def test_no_contract_lets_anything_import_agent_lightnings_package() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    downwards = next(contract for contract in contracts if contract["type"] == "layers")
    assert "lightstream.agl" in downwards["layers"][0].split(" | ")
    assert [line for line in downwards["ignore_imports"] if line.endswith("-> lightstream.agl")] == []


def test_the_stores_and_the_views_server_name_values_by_what_they_are() -> None:
    verbs = {"asked", "came", "held", "said", "told"}
    folders = [ROOT / "store_views" / name for name in ("server", "stores")]
    found: list[str] = []
    for file in (file for folder in folders for file in folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            name = getattr(node, "arg", None) if isinstance(node, ast.arg) else getattr(node, "id", None)
            if name in verbs:
                found.append(f"{file.name}: {name}")
    assert found == []
