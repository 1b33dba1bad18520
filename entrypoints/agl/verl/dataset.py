"""Tasks as a dataset of verl's data loaders: each is handed on as it is, nothing is tokenised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["AgentDataset", "LoadedDataset"]

NO_TOKENS = "fake_ids"
"""verl makes no batch without a tensor."""


class LoadedDataset:
    """Tasks in memory, for ``verl.utils.dataset.rl_dataset.collate_fn``.

    Args:
        tasks: dictionaries, all with the same keys.
    """

    def __init__(self, tasks: Sequence[dict[str, Any]]) -> None:
        self.tasks = tasks

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """The task, its number as ``index``, and a tensor that says nothing.

        Raises:
            IndexError: there are fewer.
        """
        import torch

        task = dict(self.tasks[index])
        task.setdefault("index", index)
        return task | {NO_TOKENS: torch.ones(1, dtype=torch.int)}


class AgentDataset(LoadedDataset):
    """Tasks of Parquet files.

    Args:
        data_files: one path, or several.
        others: verl's arguments of a dataset (tokenizer, config, processor, …), of no use here.

    Raises:
        FileNotFoundError: there is no such file.
    """

    def __init__(self, data_files: str | Sequence[str], *others: Any, **options: Any) -> None:
        from pyarrow import parquet

        paths = [data_files] if isinstance(data_files, str) else data_files
        super().__init__([row for path in paths for row in parquet.read_table(path).to_pylist()])
