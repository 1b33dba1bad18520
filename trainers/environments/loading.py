"""Task sets from files, from data sets of others, and from generators."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, cast

from lightstream.schemas.errors import TrainingError

from .sets import Task, TaskSet

FIELDS = frozenset({"id", "input", "metadata", "split"})


def task_set(name: str, rows: Iterable[Any], *, split: str = "") -> TaskSet:
    """A task set of rows.

    Args:
        name: of the set.
        rows: each an object with ``input`` and perhaps ``id``, ``metadata`` and ``split``; or anything else, which is
            the input itself. An id is by default the row's number.
        split: of rows that name none.

    Raises:
        TrainingError: see :class:`TaskSet`; or a field of a row is of another kind.
    """
    return TaskSet(name, _tasks(name, rows, split))


def load_task_set(path: str | Path, *, name: str | None = None) -> TaskSet:
    """A task set of files.

    Args:
        path: a file of JSON lines (``.jsonl``), a JSON list (``.json``), a Parquet file (``.parquet``), or a folder of
            these and of JSON files with one task each. Each file of several tasks in a folder is a split, and so is
            each folder within it.
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
    if not isinstance(row, Mapping) or "input" not in row or not FIELDS.issuperset(cast("Mapping[str, Any]", row)):
        return Task(str(number), dict(cast("Any", row)) if isinstance(row, Mapping) else row, split=split)
    fields = cast("Mapping[str, Any]", row)
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
    parents = place.parts[:-1]
    if file.suffix == ".json":
        value = _json(file, _text(file))
        if not isinstance(value, list):
            task = _task(name, 0, value, parents[0] if parents else "")
            has_id = isinstance(value, Mapping) and value.get("id") is not None and "input" in value
            return [task if has_id else Task(place.with_suffix("").as_posix(), task.input, task.metadata, task.split)]
    tasks = _tasks(name, _rows(file), parents[0] if parents else file.stem)
    return [_prefixed(task, place.with_suffix("").as_posix()) for task in tasks]


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
