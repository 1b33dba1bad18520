"""Parts of a Trainer from their descriptions: an object, a class, a factory, a path, or a dictionary."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeAlias, TypeVar, cast

from lightstream.schemas.errors import SettingsError

__all__ = ["OptionalDefaults", "build_component", "instantiate_component", "instantiate_from_spec", "load_class"]

PartT = TypeVar("PartT")

OptionalDefaults: TypeAlias = dict[str, Any]
"""Argument -> value, or its factory; for arguments that a constructor takes and that were not given."""

ELSEWHERE = "agentlightning"


def load_class(path: str) -> type[Any]:
    """The class at ``package.module.Class``.

    Raises:
        SettingsError: there is none.
    """
    module, _, name = path.rpartition(".")
    try:
        return cast("type[Any]", getattr(import_module(module), name))
    except (ImportError, AttributeError, ValueError) as error:
        step = "Give package.module.Class, of a package that is installed."
        if module.partition(".")[0] == ELSEWHERE:
            step = f"Here it is lightstream.agl{path.removeprefix(ELSEWHERE)}."
        raise SettingsError(f"there is no {path!r}: {error}.", next_step=step) from error


def instantiate_component(
    cls: type[Any],
    provided_kwargs: Mapping[str, Any] | None = None,
    optional_defaults: OptionalDefaults | None = None,
) -> Any:
    """Make one, with the given arguments and the ones of ``optional_defaults`` that its constructor takes."""
    arguments = dict(provided_kwargs or {})
    parameters = inspect.signature(cls).parameters
    for name, default in (optional_defaults or {}).items():
        if name in parameters and name not in arguments:
            arguments[name] = default() if callable(default) else default
    return cls(**arguments)


def instantiate_from_spec(
    spec: str | Mapping[str, Any],
    *,
    spec_name: str,
    optional_defaults: OptionalDefaults | None = None,
    dict_requires_type: bool = True,
    dict_default_cls: type[Any] | None = None,
    registry: Mapping[str, str] | None = None,
) -> Any:
    """Make one from a path (or a short name), or from a dictionary of arguments with the path as ``type``.

    Raises:
        ValueError: the dictionary names no ``type``, and needs one.
    """
    short = registry or {}
    if isinstance(spec, str):
        return instantiate_component(load_class(short.get(spec, spec)), None, optional_defaults)
    arguments = dict(spec)
    path = arguments.pop("type", None)
    if path is None and registry and "name" in arguments:
        path = arguments.pop("name")
    if isinstance(path, str):
        return instantiate_component(load_class(short.get(path) or path), arguments, optional_defaults)
    if dict_requires_type or dict_default_cls is None:
        raise ValueError(f"{spec_name} is a dictionary without 'type', the path of its class: {spec!r}")
    return instantiate_component(dict_default_cls, arguments, optional_defaults)


def build_component(
    spec: PartT | str | Mapping[str, Any] | type[PartT] | Callable[[], PartT] | None,
    *,
    expected_type: type[PartT],
    spec_name: str,
    default_factory: Callable[[], PartT] | None = None,
    allow_none: bool = False,
    optional_defaults: OptionalDefaults | None = None,
    dict_requires_type: bool = True,
    dict_default_cls: type[PartT] | None = None,
    type_error_fmt: str | None = None,
    invalid_spec_error_fmt: str | None = None,
    registry: Mapping[str, str] | None = None,
) -> PartT | None:
    """The part that ``spec`` describes.

    Args:
        spec: the part; its class; a function that makes it; a path or a name of ``registry``; a dictionary with the
            path as ``type`` and the constructor's arguments; or ``None``.
        expected_type: what it must be.
        spec_name: what it is for, in errors.
        default_factory: makes it where ``spec`` is ``None``.
        allow_none: whether there may be none at all.
        optional_defaults: see :data:`OptionalDefaults`.
        dict_requires_type, dict_default_cls: whether a dictionary must name its class, or which one it is.
        type_error_fmt: text of the error for another type (``{type_name}``, ``{expected_type}``).
        invalid_spec_error_fmt: text of the error for what describes nothing (``{actual_type}``, ``{expected_type}``).
        registry: short name -> path.

    Raises:
        TypeError: what was made is of another type.
        ValueError: ``spec`` describes nothing.
        SettingsError: there is no such path.
    """
    part: Any
    described: Any = spec
    if isinstance(described, expected_type):
        return described
    if described is None and default_factory is not None:
        part = default_factory()
    elif described is None and allow_none:
        return None
    elif isinstance(described, type):
        part = instantiate_component(described, None, optional_defaults)
    elif isinstance(described, str | Mapping):
        part = instantiate_from_spec(
            cast("str | Mapping[str, Any]", described),
            spec_name=spec_name,
            optional_defaults=optional_defaults,
            dict_requires_type=dict_requires_type,
            dict_default_cls=dict_default_cls,
            registry=registry,
        )
    elif callable(described):
        part = described()
    else:
        text = invalid_spec_error_fmt or spec_name + " is {actual_type}; it must be {expected_type}, or describe one"
        raise ValueError(text.format(actual_type=type(described), expected_type=expected_type.__name__))
    if not isinstance(part, expected_type):
        text = type_error_fmt or spec_name + " is {type_name}, not {expected_type}"
        raise TypeError(text.format(type_name=str(type(part)), expected_type=expected_type.__name__))
    return part
