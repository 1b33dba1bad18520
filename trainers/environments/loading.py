"""Task sets from files, from data sets of others, and from generators."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

from lightstream.schemas.errors import TrainingError

from .sets import Task, TaskSet

FIELDS = frozenset({"id", "input", "metadata", "split"})
SPLITS = frozenset({"dev", "test", "train", "val", "validation"})
SHARD = re.compile(r"-\d+(-of-\d+)?$")
"""Of a file's name: its number among the files of a split."""


def task_set(name: str, rows: Iterable[Any], *, split: str = "") -> TaskSet:
    """A task set of rows.

    Args:
        name: of the set.
        rows: each an object with ``input`` and perhaps ``id``, ``metadata`` and ``split``, and nothing else; or
            anything without ``input``, which is the input itself. An id is by default the row's number.
        split: of rows that name none.

    Raises:
        TrainingError: see :class:`TaskSet`; or a field of a row is of another kind, or stands beside ``input``.
    """
    return TaskSet(name, _tasks(name, rows, split))


def load_task_set(path: str | Path, *, name: str | None = None) -> TaskSet:
    """A task set of files.

    Args:
        path: a file of JSON lines (``.jsonl``), a JSON list (``.json``), a Parquet file (``.parquet``), or a folder of
            these and of JSON files with one task each. Each file of several tasks in a folder is a split, and so is
            each folder within it: the one named as a split usually is (``data/test-00000-of-00002.parquet``), else the
            outermost folder. Where there are splits, other tasks are of ``train``.
        name: of the set; by default that of the file or folder.

    Raises:
        TrainingError: it cannot be read, has no tasks, leads out of its folder, or see :func:`task_set`.
    """
    path = Path(path).expanduser()
    name = name or (path.name if path.is_dir() else path.stem)
    if not path.is_dir():
        return task_set(name, _rows(path))
    root = path.resolve()
    tasks: list[Task] = []
    for file in sorted(path.rglob("*")):
        if file.suffix not in (".json", ".jsonl", ".parquet") or not file.is_file():
            continue
        if not file.resolve().is_relative_to(root):
            raise TrainingError(
                f"{file} leads out of its folder, to {file.resolve()}.", next_step="Copy the file into the folder."
            )
        tasks += _of_file(name, path, file)
    if any(task.split for task in tasks):
        tasks = [replace(task, split=task.split or "train") for task in tasks]
    return TaskSet(name, tasks)


def task_set_of(dataset: Any, *, name: str) -> TaskSet:
    """A task set of a Hugging Face ``Dataset`` or ``DatasetDict`` (its keys are the splits), read as a whole.

    Raises:
        TrainingError: see :func:`task_set`.
    """
    if isinstance(dataset, Mapping):
        parts = cast("Mapping[str, Iterable[Any]]", dataset)
        tasks: list[Task] = []
        for split, rows in parts.items():
            tasks += [_prefixed(task, str(split)) for task in _tasks(name, rows, str(split))]
        return TaskSet(name, tasks)
    return task_set(name, dataset)


def generated_task_set(make: Callable[[int], Iterable[Any]], *, name: str, count: int, seed: int = 0) -> TaskSet:
    """A task set of a generator: the first ``count`` rows of ``make(seed)``. Its digest shows whether it is repeatable.

    Raises:
        TrainingError: it makes fewer; or see :func:`task_set`.
    """
    rows = list(islice(make(seed), count))
    if len(rows) < count:
        raise TrainingError(
            f"the generator of {name!r} made {len(rows)} tasks with seed {seed}, and {count} are wanted.",
            next_step="Ask for fewer.",
        )
    return task_set(name, rows)


def _tasks(name: str, rows: Iterable[Any], split: str = "") -> list[Task]:
    return [_task(name, number, row, split) for number, row in enumerate(rows)]


def _task(name: str, number: int, row: Any, split: str) -> Task:
    if not isinstance(row, Mapping) or "input" not in row:
        return Task(str(number), dict(cast("Any", row)) if isinstance(row, Mapping) else row, split=split)
    fields = cast("Mapping[str, Any]", row)
    if others := [str(field) for field in fields if field not in FIELDS]:
        raise TrainingError(
            f"task {number} of {name!r} has {', '.join(others)} beside its input.",
            next_step="Agents would see them: put them in metadata; or name the row's input otherwise.",
        )
    metadata = fields.get("metadata")
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TrainingError(
            f"the metadata of task {number} of {name!r} are {metadata!r:.100}, no object.",
            next_step='Write them as {"answer": …}.',
        )
    given = fields.get("id")
    task_id = str(number) if given is None else str(given)
    return Task(task_id, fields["input"], dict(cast("Any", metadata or {})), str(fields.get("split") or split))


def _prefixed(task: Task, prefix: str) -> Task:
    return Task(f"{prefix}/{task.id}", task.input, task.metadata, task.split)


def _of_file(name: str, folder: Path, file: Path) -> list[Task]:
    """The tasks of a file in a folder: one of a JSON file, else those of a split of the file's name."""
    place = file.relative_to(folder)
    split = _split_of(file, place)
    if file.suffix == ".json":
        value = _json(file, _text(file))
        if not isinstance(value, list):
            task = _task(name, 0, value, split if len(place.parts) > 1 else "")
            has_id = isinstance(value, Mapping) and value.get("id") is not None and "input" in value
            return [task if has_id else Task(place.with_suffix("").as_posix(), task.input, task.metadata, task.split)]
    tasks = _tasks(name, _rows(file), split)
    return [_prefixed(task, place.with_suffix("").as_posix()) for task in tasks]


def _split_of(file: Path, place: Path) -> str:
    """The split that a file's place names.

    Raises:
        TrainingError: it names two.
    """
    names = [*place.parts[:-1], SHARD.sub("", place.stem)]
    known = list(dict.fromkeys(name for name in names if name in SPLITS))
    if len(known) > 1:
        raise TrainingError(f"{file} is named as two splits, {' and '.join(known)}.", next_step="Move it to one.")
    return known[0] if known else names[0]


def _rows(file: Path) -> list[Any]:
    if file.suffix == ".parquet":
        return _parquet(file)
    text = _text(file)
    if file.suffix == ".json":
        value = _json(file, text)
        if not isinstance(value, list):
            raise TrainingError(f"{file} has no list of tasks.", next_step="JSON lines, one task each, are taken too.")
        return value
    rows: list[Any] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            rows.append(_json(file, line, number))
    return rows


def _parquet(file: Path) -> list[dict[str, Any]]:
    import duckdb

    try:
        with duckdb.connect() as connection:
            table = connection.execute("FROM read_parquet(?)", [str(file)])
            names = [column[0] for column in table.description or ()]
            return [dict(zip(names, row, strict=True)) for row in table.fetchall()]
    except duckdb.Error as error:
        raise TrainingError(f"{file} is no Parquet file that can be read: {error}.") from error


def _json(file: Path, text: str, line: int | None = None) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        place = f"{file}" if line is None else f"line {line} of {file}"
        raise TrainingError(f"{place} is no JSON: {error}.", next_step="Each task is JSON.") from error


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TrainingError(f"{file} cannot be read: {error}.") from error
