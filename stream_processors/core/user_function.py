"""A user's function, by name: ``package.module:function`` or ``path/to/file.py:function``."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from lightstream.schemas.errors import SettingsError


def is_function_name(name: str) -> bool:
    """Whether ``name`` has the form of a module or file and a function in it."""
    where, colon, function = name.rpartition(":")
    return bool(colon) and function.isidentifier() and bool(where)


@cache
def user_function(name: str) -> Callable[..., Any]:
    """The function; its module or file is run once in this process.

    Raises:
        SettingsError: there is no such module, file or function, or running it failed.
    """
    where, _, function = name.rpartition(":")
    try:
        module = _file(where) if where.endswith(".py") else importlib.import_module(where)
    except Exception as error:  # the user's code may raise anything while it loads
        raise SettingsError(
            f"{where!r} of {name!r} cannot be loaded: {type(error).__name__}: {error}.",
            next_step="Name a module on the Python path, or a file: path/to/file.py:function.",
        ) from error
    found = getattr(module, function, None)
    if not callable(found):
        raise SettingsError(f"{where!r} has no function {function!r}.")
    return found  # type: ignore[no-any-return]  # whatever the user wrote


def _file(where: str) -> ModuleType:
    path = Path(where).expanduser().resolve()
    spec = importlib.util.spec_from_file_location(f"lightstream_user_{abs(hash(path))}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
