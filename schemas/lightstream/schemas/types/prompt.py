"""Filling in prompt templates. Engines are imported when a template first needs them."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["fill_in"]


def fill_in(template: str, engine: str, values: Mapping[str, Any]) -> str:
    """``template`` with ``values`` in its holes.

    Raises:
        KeyError: an f-string's hole has no value.
        NotImplementedError: the engine's package is not installed, or there is no such engine.
    """
    if engine == "f-string":
        return template.format(**values)
    if engine == "jinja":
        # Templates come from the store: the sandbox keeps them from Python's internals.
        sandbox = _package("jinja2.sandbox", engine)
        return str(sandbox.SandboxedEnvironment(keep_trailing_newline=True).from_string(template).render(**values))
    if engine == "poml":
        return _text(_package("poml", engine).poml(template, context=dict(values), chat=False))
    raise NotImplementedError(f"no template engine {engine!r}; there are f-string, jinja and poml")


def _package(name: str, engine: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise NotImplementedError(f"{engine} templates need the package {package}: pip install {package}") from error


def _text(content: Any) -> str:
    """What POML renders: text, or a list of parts of which texts are joined."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_text(part) for part in content)
    if isinstance(content, Mapping) and "content" in content:
        return _text(content["content"])
    return json.dumps(content, ensure_ascii=False)
