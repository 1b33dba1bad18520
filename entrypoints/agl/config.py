"""Objects from a program's own command line."""

from __future__ import annotations

import argparse
import inspect
import types
from collections.abc import Callable
from typing import Any, Union, get_args, get_origin, get_type_hints

__all__ = ["lightning_cli", "nullable_float", "nullable_int", "nullable_str"]

NONE_WORDS = ("none", "null", "~", "nil")
YES, NO = ("yes", "true", "t", "y", "1"), ("no", "false", "f", "n", "0")


def lightning_cli(*classes: type[Any]) -> Any:
    """One object of each class, made from the command line: ``--trainer.n-runners 4`` is ``Trainer(n_runners=4)``.

    Arguments that are numbers, strings, yes or no, or lists of these, or may be ``None``, are read as such, all others
    as strings. Arguments not given keep the constructor's default.

    Returns:
        the object, or a tuple of them where there are several classes.

    Raises:
        SystemExit: the command line is wrong, or asks for help.
    """
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    arguments = [_add_class(parser, cls) for cls in classes]
    parsed = vars(parser.parse_args())
    objects = tuple(
        cls(**{name: parsed[key] for name, key in names.items() if key in parsed})
        for cls, names in zip(classes, arguments, strict=True)
    )
    return objects[0] if len(objects) == 1 else objects


def nullable_str(value: str) -> str | None:
    """A string, or ``None`` by one of its names."""
    return None if value.lower() in NONE_WORDS else value


def nullable_int(value: str) -> int | None:
    """A whole number, or ``None`` by one of its names."""
    return None if value.lower() in NONE_WORDS else int(value)


def nullable_float(value: str) -> float | None:
    """A number, or ``None`` by one of its names."""
    return None if value.lower() in NONE_WORDS else float(value)


def _add_class(parser: argparse.ArgumentParser, cls: type[Any]) -> dict[str, str]:
    """Add an option for each argument of the constructor; returns their keys by the arguments' names."""
    prefix, keys = cls.__name__.lower(), dict[str, str]()
    hints = get_type_hints(cls.__init__)
    group = parser.add_argument_group(cls.__name__)
    for name, parameter in list(inspect.signature(cls).parameters.items()):
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        keys[name] = f"{prefix}_{name}"
        needed = parameter.default is parameter.empty
        group.add_argument(
            f"--{prefix}.{name.replace('_', '-')}",
            dest=keys[name],
            required=needed,
            default=argparse.SUPPRESS,
            help="needed" if needed else f"by default {parameter.default!r}".replace("%", "%%"),
            **_reading(hints.get(name, str)),
        )
    return keys


def _reading(hint: Any) -> dict[str, Any]:
    """The options by which argparse reads an argument of this type."""
    choices = [hint]
    if get_origin(hint) in (Union, types.UnionType):
        choices = [choice for choice in get_args(hint) if choice is not type(None)]
    optional = choices != [hint] and type(None) in get_args(hint)
    for choice in choices:
        if get_origin(choice) is list or choice is list:
            return {"nargs": "*", **_reading((get_args(choice) or (str,))[0])}
    simple: dict[Any, tuple[Callable[[str], Any], Callable[[str], Any]]] = {
        bool: (_yes_or_no, lambda text: None if text.lower() in NONE_WORDS else _yes_or_no(text)),
        int: (int, nullable_int),
        float: (float, nullable_float),
    }
    for kind, (plain, nullable) in simple.items():
        if kind in choices:
            return {"type": nullable if optional else plain}
    return {"type": nullable_str if optional else str}


def _yes_or_no(text: str) -> bool:
    if text.lower() not in YES + NO:
        raise argparse.ArgumentTypeError(f"{text!r} is neither yes nor no")
    return text.lower() in YES
