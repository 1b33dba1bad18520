"""Data sets as people pass them: the lists of tasks they become, and whether each task can be sent to a Runner."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, cast

from lightstream.schemas.errors import TrainingError

from .tasks import Dataset

_LIST = "Pass a list of tasks, or anything else that has a length and gives a task for each number from 0."


def as_tasks(given: Any) -> Dataset:
    """Tasks by position, made of values with one meaning; a value with positions and a length is returned as it is.

    Rows of a table (pandas, polars, Arrow) become objects, with ``None`` where a cell is empty; arrays and series
    become lists; a set becomes a list in the order of its tasks' JSON, which is the same at each start.

    Raises:
        TrainingError: it is something else. Says what to pass.
    """
    kind = type(given).__name__
    if isinstance(given, str | bytes):
        raise TrainingError(
            f"the tasks are one text ({kind}), not a list.",
            next_step="Pass [text] for a single task; of a file, pass its lines.",
        )
    if isinstance(given, Mapping):
        keyed: Mapping[Any, Any] = given
        names = [str(name) for name in keyed]
        shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
        raise TrainingError(
            f"the tasks are an object ({kind}) with the keys {shown or '(none)'}, not a list.",
            next_step=f"Pass one of its data sets, as in fit(agent, data[{names[0]!r}])." if names else _LIST,
        )
    if isinstance(given, Iterator):
        raise TrainingError(
            f"the tasks come from an iterator ({kind}), which gives each of them once; a run needs them again.",
            next_step="Pass list(tasks).",
        )
    table = _rows(given)
    if table is not None:
        return table
    if isinstance(given, set | frozenset):
        return sorted(cast("Iterable[Any]", given), key=lambda task: json.dumps(task, sort_keys=True, default=repr))
    if hasattr(given, "__len__") and hasattr(given, "__getitem__"):
        return cast("Dataset", given)
    if isinstance(given, Collection):
        some: Collection[Any] = given
        return list(some)
    raise TrainingError(f"the tasks are {kind}, not a list.", next_step=_LIST)


def checked_json(tasks: Dataset, index: int) -> str:
    """A task as JSON with its keys in order.

    Raises:
        TrainingError: it cannot be read, or something in it is no JSON value. Names the task and the place in it.
    """
    try:
        task = tasks[index]
    except (LookupError, TypeError, ValueError) as error:
        raise TrainingError(
            f"the data set ({type(tasks).__name__}) says that it has {len(tasks)} tasks, and does not give task "
            f"{index}: {type(error).__name__}: {error}.",
            next_step=_LIST,
        ) from error
    try:
        text = json.dumps(task, sort_keys=True, default=_plain, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        found = _not_json(task)
        raise TrainingError(
            f"task {index} of the data set cannot be sent to a Runner: {found or f'{type(error).__name__}: {error}'}.",
            next_step="Tasks are JSON values: texts, finite numbers, true, false, null, lists and objects. "
            "Write others as one of these, a date as text for example.",
        ) from error
    from lightstream.store_views.stores.json_text import JSON_DEPTH_MAX, is_too_deep

    if is_too_deep(text):
        raise TrainingError(
            f"task {index} of the data set has lists and objects nested more than {JSON_DEPTH_MAX} deep.",
            next_step="Make it flatter, or pass it as text.",
        )
    return text


def _rows(given: Any) -> list[Any] | None:
    """The rows of a table or the items of an array; ``None``: it is neither."""
    if hasattr(given, "columns") and hasattr(given, "iloc"):  # pandas
        return [_cell(row) for row in given.to_dict("records")]
    if callable(to_dicts := getattr(given, "to_dicts", None)):  # polars
        return [_cell(row) for row in cast("list[Any]", to_dicts())]
    if callable(to_pylist := getattr(given, "to_pylist", None)):  # Arrow
        return list(cast("list[Any]", to_pylist()))
    if callable(tolist := getattr(given, "tolist", None)):  # a series, an array, a tensor
        items = tolist()
        values: list[Any] | None = items if isinstance(items, list) else None  # a single number is no list
        return None if values is None else [_cell(item) for item in values]
    return None


def _cell(value: Any) -> Any:
    """A cell of a table as Python has it; empty ones are ``None``."""
    if isinstance(value, Mapping):
        keyed: Mapping[Any, Any] = value
        return {key: _cell(item) for key, item in keyed.items()}
    if callable(tolist := getattr(value, "tolist", None)):
        value = tolist()
    if isinstance(value, list | tuple):
        return [_cell(item) for item in cast("list[Any]", value)]
    is_empty = (isinstance(value, float) and math.isnan(value)) or type(value).__name__ in ("NAType", "NaTType")
    return None if is_empty else value


def _plain(value: Any) -> Any:
    """Pydantic models as they are sent."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is no JSON value")


def _not_json(value: Any, place: str = "", depth: int = 0) -> str:
    """The first thing within a value that is no JSON, and where; empty if none is found."""
    if depth > 100 or hasattr(value, "model_dump"):
        return ""
    if isinstance(value, Mapping):
        items: Mapping[Any, Any] = value
        for key in items:
            if not isinstance(key, str):
                return f"the key {key!r}{_at(place)} is no text ({type(key).__name__})"
        return next(filter(None, (_not_json(item, f"{place}.{key}", depth + 1) for key, item in items.items())), "")
    if isinstance(value, list | tuple):
        parts = enumerate(cast("list[Any]", value))
        return next(filter(None, (_not_json(item, f"{place}[{i}]", depth + 1) for i, item in parts)), "")
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value!r}{_at(place)} is no JSON number"
    if value is None or isinstance(value, str | int | float):
        return ""
    return f"{type(value).__name__} is no JSON value, {value!r:.60}{_at(place)}"


def _at(place: str) -> str:
    return f" at {place}" if place else ""
