"""Parameters of Agent Lightning 0.3's interface, as its package has them: each is there, in its place.

``agl_signatures.txt`` has a line for each callable: positional parameters in order, those by name alone with a ``*``.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import lightstream.agl as agl

LISTED = Path(__file__).with_name("agl_signatures.txt")

DIFFERENT = {
    "Baseline.run": "an algorithm here asks for its store and proxy: get_store(), get_llm_proxy()",
    "Hook.on_rollout_end": "its spans come by name too",
    "InMemoryLightningStore.wait_for_rollout": "wait_for_rollouts",
    "LLMProxy": "the last three are given by name",
    "LLMProxy.initialize": "start",
    "LLMProxy.restart": "the port stays",
    "LightningStoreServer": "the last three are given by name",
    "algo": "a decorator, whose function is given by position",
    "rollout": "a decorator, whose function is given by position",
}
"""What is not so here, and why."""


def signatures() -> list[tuple[str, list[str]]]:
    """Each callable, and its parameters."""
    lines = [line.removesuffix(")").partition("(") for line in LISTED.read_text().splitlines()]
    return [(name, [each for each in named.split(", ") if each]) for name, _, named in lines]


def missing(name: str, wanted: list[str]) -> str | None:
    """What ours lacks of the parameters that it should have."""
    owner, _, method = name.partition(".")
    found: Any = getattr(agl, owner)
    if method:
        found = getattr(found, method, None)
    elif inspect.isclass(found):
        found = found.__init__
    if found is None:
        return "it is missing"
    here = [each for each in inspect.signature(found).parameters.values() if each.name not in ("self", "cls")]
    takes_any = any(each.kind is each.VAR_KEYWORD for each in here)
    by_position = [each.name for each in here if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    names = {each.name for each in here}
    positional = [each for each in wanted if not each.startswith("*")]
    if by_position[: len(positional)] != positional:
        return f"it takes {by_position}, not {positional}"
    unknown = [each for each in wanted if each.lstrip("*") not in names and not takes_any]
    return f"it takes no {unknown}" if unknown else None


@pytest.mark.parametrize(("name", "wanted"), signatures(), ids=lambda value: value if isinstance(value, str) else "")
def test_it_takes_what_programs_give(name: str, wanted: list[str]) -> None:
    problem = missing(name, wanted)
    if name in DIFFERENT:
        assert problem is not None, "it is the same by now: strike it from DIFFERENT"
    else:
        assert problem is None, problem
