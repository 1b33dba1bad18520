"""The page of Agent Lightning's names says what is so."""

from __future__ import annotations

from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path

import pytest

from lightstream.agl._names import ABSENT_MODULES, ABSENT_NAMES, MODULES
from lightstream.agl.document import names_as_markdown

DOCS = Path(__file__).parents[2] / "docs"


def test_the_pages_are_current() -> None:
    kept = [DOCS / "agent-lightning.md", *DOCS.glob("agent-lightning/*.md")]
    texts = {str(page.relative_to(DOCS)): page.read_text("utf-8") for page in kept}
    assert texts == names_as_markdown(), "run make docs"


@pytest.mark.parametrize("path", sorted(MODULES))
def test_a_module_is_there_or_said_to_be_absent(path: str) -> None:
    if path in ABSENT_MODULES:
        with pytest.raises(ModuleNotFoundError):
            import_module(f"lightstream.agl.{path}")
        return
    module = import_module(f"lightstream.agl.{path}")
    for name in MODULES[path].split():
        assert hasattr(module, name) or any(fnmatchcase(f"{path}.{name}", pattern) for pattern in ABSENT_NAMES), name


def test_what_is_said_to_be_absent_is_of_agent_lightning() -> None:
    names = [f"{path}.{name}" for path, listed in MODULES.items() for name in listed.split()]
    assert ABSENT_MODULES.keys() <= MODULES.keys()
    assert [pattern for pattern in ABSENT_NAMES if not any(fnmatchcase(name, pattern) for name in names)] == []


def test_the_module_of_rewards_is_a_decorator_too() -> None:
    """``agl.reward`` is a function, and a module once that was imported."""
    import lightstream.agl as agl

    module = import_module("lightstream.agl.reward")

    @agl.reward
    def of(task: str) -> float:
        return float(len(task))

    with agl.DummyTracer().lifespan():
        assert callable(of)
    assert module.find_final_reward is agl.find_final_reward
