"""Generations as text: a file of JSON lines for each step or validation, as verl's ``rollout_data_dir`` has them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lightstream.runtime.files import private_folder, write_text
from lightstream.schemas.errors import TrainingError
from lightstream.schemas.packing import TOKEN_BYTES
from lightstream.schemas.records import Trajectory

from ..rollouts.batch import rollout_score
from ..rollouts.groups import Group
from ..run.run import Run


def dump_generations(folder: str | Path | None, step: int, groups: Sequence[Group], run: Run) -> None:
    """Write ``<folder>/<step>.jsonl``, in place of one that is there; nothing without a folder.

    One line for each call of each rollout: ``input`` and ``output`` as text without special tokens, ``score`` of the
    rollout (``null`` where it has none), ``step``, and ``group_id``, ``rollout_id``, ``call_index``, ``task``. A
    rollout without calls has one line, whose ``call_index`` is ``null``.

    Raises:
        TrainingError: the file cannot be written. Nothing of the step is committed.
    """
    if folder is None:
        return
    path = Path(folder).expanduser() / f"{step}.jsonl"
    tokenizer = _tokenizer(run.folder_of(run.history.checkpoints[0]))
    lines = [
        json.dumps({**line, "step": step, "group_id": group.group_id}, ensure_ascii=False)
        for group in groups
        for trajectory in group.trajectories
        for line in _lines(trajectory, tokenizer)
    ]
    try:
        private_folder(path.parent)
        write_text(path, "".join(f"{line}\n" for line in lines))
    except OSError as error:
        raise TrainingError(
            f"the generations of step {step} cannot be written: {error}.",
            next_step="Nothing of the step is committed: make room, or name another rollout_data_dir or "
            "validation_data_dir, and the same command goes on.",
        ) from error


def _lines(trajectory: Trajectory, tokenizer: Any) -> Iterator[dict[str, Any]]:
    about = {
        "score": rollout_score(trajectory),
        "rollout_id": trajectory.rollout_id,
        "task": json.loads(trajectory.input_json or "null"),
    }
    for call in trajectory.triplets:
        texts = (_text(ids, tokenizer) for ids in (call.prompt_token_ids, call.response_token_ids))
        yield {**dict(zip(("input", "output"), texts, strict=True)), **about, "call_index": call.call_index}
    if not trajectory.triplets:
        yield {"input": "", "output": "", **about, "call_index": None}


def _text(packed: bytes, tokenizer: Any) -> str:
    whole = len(packed) - len(packed) % TOKEN_BYTES  # a record is whatever somebody wrote
    ids = np.frombuffer(packed[:whole], "<i4")
    text: str = tokenizer.decode(ids[ids >= 0].tolist(), skip_special_tokens=True)
    return text


def _tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return tokenizer
