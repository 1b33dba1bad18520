"""Filling in prompt templates. Engines are imported when a template first needs them."""

from __future__ import annotations

import importlib
import json
import string
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["fill_in"]


def fill_in(template: str, engine: str, values: Mapping[str, Any]) -> str:
    """``template`` with ``values`` in its placeholders.

    Templates come from the store: f-strings and jinja are kept from Python's internals. POML runs in a separate
    process (some seconds) and may read files: take such templates from people you trust.

    Raises:
        KeyError: an f-string's placeholder has no value.
        ValueError: an f-string asks for a private attribute.
        NotImplementedError: the engine's package is not installed, or there is no such engine.
    """
    if engine == "f-string":
        return _Formatter().vformat(template, (), values)
    if engine == "jinja":
        sandbox = _package("jinja2.sandbox", engine)
        return str(sandbox.SandboxedEnvironment(keep_trailing_newline=True).from_string(template).render(**values))
    if engine == "poml":
        return _text(_package("poml", engine).poml(template, context=dict(values), chat=False))
    raise NotImplementedError(f"no template engine {engine!r}; there are f-string, jinja and poml")


class _Formatter(string.Formatter):
    """``str.format``, without the way from a value to everything in the process."""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if "._" in field_name:
            raise ValueError(f"the placeholder {field_name!r} asks for a private attribute")
        return super().get_field(field_name, args, kwargs)


def _package(name: str, engine: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise NotImplementedError(
            f"{engine} templates need the package {package}: pip install 'lightstream[prompts]'"
        ) from error


def _text(content: Any) -> str:
    """What POML renders: text, or a list of parts of which texts are joined."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_text(part) for part in content)
    if isinstance(content, Mapping) and "content" in content:
        return _text(content["content"])
    return json.dumps(content, ensure_ascii=False)
