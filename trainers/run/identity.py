"""Names of runs, and a check that a run goes on with its first configuration."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightstream.schemas.errors import TrainingError

from .data_sets import as_tasks, checked_json
from .tasks import Dataset, DescribesTasks

TASKS_HASHED_MAX = 256
"""Of a data set; its size counts too."""

OPTIONS = "options"
"""Name among what a run is made with for all of the algorithm's options, as JSON. They may change on the way."""

HASHED_BYTES_MAX = 1 << 20
"""Of each weight file; its size counts too."""


def name_of_program() -> str:
    """A trainer's default name: ``train`` for ``python train.py``, ``pkg.train`` for ``python -m pkg.train``.

    Raises:
        TrainingError: the program has none: a notebook, or text from standard input.
    """
    main: Any = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    name = "" if spec is None else str(spec.name).removesuffix(".__main__")
    file = getattr(main, "__file__", None) or "<none>"
    if not name and not file.startswith("<"):
        name = Path(file).stem
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("._-")[:100]
    if not name or name == "ipykernel_launcher":
        raise TrainingError(
            "this run has no name: a notebook, or a program from standard input, has none of its own.",
            next_step='Give it one, for example Trainer(trainer_id="my-first-run"): the same name goes on later.',
        )
    return name


def identity_of_dataset(tasks: Dataset) -> str:
    """The size of a data set, and a hash of its first tasks, or its own name and digest; looks at every task.

    Raises:
        TrainingError: it is no data set (see :func:`.data_sets.as_tasks`), has no tasks, or one of them is no JSON
            value.
    """
    tasks = as_tasks(tasks)
    size = len(tasks)
    if size < 1:
        raise TrainingError("the data set has no tasks.", next_step="Pass at least one task to Trainer.fit.")
    if isinstance(tasks, DescribesTasks):
        return tasks.identity  # made of every task, each of which is JSON
    digest = hashlib.sha256()
    for index in range(size):
        text = checked_json(tasks, index)
        if index < TASKS_HASHED_MAX:
            digest.update(text.encode())
    return f"{size} tasks ({digest.hexdigest()[:12]})"


def check_model(model: str | Path) -> None:
    """Refuse a model that is certainly not there, before anything is loaded.

    Raises:
        TrainingError: it is a path of a folder that does not exist or holds no model.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise TrainingError(
                f"the model folder {folder} has no config.json.",
                next_step="Name a folder as `save_pretrained` writes it; `lightstream model tiny PATH` makes one.",
            )
        return
    text = str(model)
    if isinstance(model, Path) or text.startswith((".", "~", "/")) or text.count("/") > 1 or "\\" in text:
        raise TrainingError(
            f"there is no model folder {text!r} (looked for {folder.absolute()}).",
            next_step="Name a folder as `save_pretrained` writes it, or a model of the Hugging Face Hub (org/name); "
            "`lightstream model tiny PATH` makes a small one.",
        )


def identity_of_model(model: str | Path) -> str:
    """The name of a model; of a folder also a hash of its configuration and weights."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return str(model)
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.name == "config.json" or path.suffix in (".safetensors", ".bin"):
            digest.update(f"{path.name}:{path.stat().st_size};".encode())
            with path.open("rb") as file:
                digest.update(file.read(HASHED_BYTES_MAX))
    return f"{folder.absolute().name} ({digest.hexdigest()[:12]})"


def check_same_run(run_id: str, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Refuse to go on with a run by other means. What :data:`OPTIONS` says may differ.

    Raises:
        TrainingError: names every difference.
    """
    changed = [
        f"{name.replace('_', ' ')}: {before[name]} before, {now[name]} now"
        for name in sorted((before.keys() & now.keys()) - {OPTIONS})
        if before[name] != now[name]
    ]
    if changed:
        raise TrainingError(
            f"run {run_id!r} was begun with something else ({'; '.join(changed)}).",
            next_step="Give the new run a name of its own (Trainer(trainer_id=...)), or set these back to go on with "
            "the old one.",
        )
