"""Agent Lightning's public names as Markdown: ``python -m lightstream.agl.document > docs/agent-lightning.md``."""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase
from importlib import import_module

from ._dotted_names import ABSENT_MODULES, ABSENT_NAMES, MODULES
from ._names import ABSENT, FLAT, PUBLIC

__all__ = ["names_as_markdown"]

HEAD = """# Agent Lightning's names

Every public name of agentlightning 0.3.0 and what it is here. Written by `python -m lightstream.agl.document`; do not
edit. [tracing.md](tracing.md) lists what behaves differently.
"""

FLAT_HEAD = """
## The package

`import lightstream.agl as agl` in place of `agentlightning`; a name that is absent says what to use instead.

| name | here |
|---|---|
"""

DOTTED_HEAD = """
## Its modules

`lightstream.agl.<module>` in place of `agentlightning.<module>`.

| module | here | absent |
|---|---|---|
"""


def names_as_markdown() -> str:
    """The whole page.

    Raises:
        LookupError: a name is neither here nor said to be absent.
    """
    flat = "".join(f"| `{name}` | {_flat_state(name)} |\n" for name in sorted(PUBLIC, key=str.lower))
    dotted = "".join(_module_row(path, names.split()) for path, names in sorted(MODULES.items()))
    return HEAD + FLAT_HEAD + flat + DOTTED_HEAD + dotted


def _flat_state(name: str) -> str:
    return f"absent: {ABSENT[name]}" if name in ABSENT else f"`{FLAT[name]}`"


def _module_row(path: str, names: list[str]) -> str:
    if path in ABSENT_MODULES:
        return f"| `{path}` | | {', '.join(f'`{name}`' for name in names)}: {ABSENT_MODULES[path]} |\n"
    module = import_module(f"lightstream.agl.{path}")
    here = [name for name in names if hasattr(module, name)]
    reasons: dict[str, list[str]] = {}
    for name in names:
        if name not in here:
            reasons.setdefault(_instead(f"{path}.{name}"), []).append(f"`{name}`")
    absent = "; ".join(f"{', '.join(missing)}: {reason}" for reason, missing in reasons.items())
    return f"| `{path}` | {', '.join(f'`{name}`' for name in here)} | {absent} |\n"


def _instead(name: str) -> str:
    for pattern, instead in ABSENT_NAMES.items():
        if fnmatchcase(name, pattern):
            return instead
    raise LookupError(f"{name} is not in lightstream.agl, and ABSENT_NAMES does not say what replaces it")


if __name__ == "__main__":
    sys.stdout.write(names_as_markdown())
