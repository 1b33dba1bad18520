"""One model in several processes: each holds a part of its parameters and computes a part of each batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...rollouts.batch import BatchArrays
from .tensors import micro_batches


@dataclass(frozen=True, slots=True)
class Shard:
    """One of these processes. All of them make the same calls, with the same arguments, at the same time.

    Attributes:
        rank: 0, 1, … Rank 0 writes the files.
        count: how many there are.
        address: ``host:port`` at which rank 0 lets them find each other; ``""`` where there is one alone.
    """

    rank: int = 0
    count: int = 1
    address: str = ""

    def environment(self) -> dict[str, str]:
        """The variables that verl's Worker reads."""
        host, _, port = self.address.rpartition(":")
        return {
            "RANK": str(self.rank),
            "LOCAL_RANK": "0",  # Ray shows each process its own GPU alone
            "WORLD_SIZE": str(self.count),
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": host or "127.0.0.1",
            "MASTER_PORT": port or "0",  # never opened: the process group exists already
        }

    def micro_batches(
        self, lengths: Sequence[int], rows: Sequence[int], tokens_max: int, *, packed: bool, rows_max: int | None = None
    ) -> list[list[int]]:
        """The micro-batches of this process, of some rows of a batch; all processes have equally many.

        Args:
            lengths: tokens of each row of the batch, the idle one (see :func:`with_idle_row`) not among them.
            rows: which.
            tokens_max, rows_max: as for :func:`.tensors.micro_batches`.

        Returns:
            Numbers of rows; where there are too few micro-batches, the idle row's.
        """
        chosen = [lengths[row] for row in rows]
        each = -(-sum(chosen) // self.count)  # so that nobody is idle while others compute large ones
        parts = micro_batches(chosen, min(tokens_max, max(each, *chosen)), packed=packed, rows_max=rows_max)
        own = [[rows[i] for i in part] for part in parts[self.rank :: self.count]]
        return own + [[len(lengths)]] * (-(-len(parts) // self.count) - len(own))

    def summed(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The sum of all processes' values, element by element."""
        return self._reduced(values, "SUM")

    def largest(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The largest of the processes' values, element by element."""
        return self._reduced(values, "MAX")

    def _reduced(self, values: npt.NDArray[np.float64], operation: str) -> npt.NDArray[np.float64]:
        if self.count == 1:
            return values
        import torch
        from torch import distributed

        untyped: Any = distributed
        tensor = torch.from_numpy(values.copy())
        untyped.all_reduce(tensor, op=getattr(untyped.ReduceOp, operation))
        return tensor.numpy()


def with_idle_row(arrays: BatchArrays) -> BatchArrays:
    """The batch and, as its last row, one of two tokens that no loss looks at: for processes without work."""

    def more(values: Any, *further: float) -> Any:
        return np.concatenate([values, np.asarray(further, values.dtype)])

    return replace(
        arrays,
        prompt_lengths=more(arrays.prompt_lengths, 1),
        response_lengths=more(arrays.response_lengths, 1),
        input_ids=more(arrays.input_ids, 0, 0),
        position_ids=more(arrays.position_ids, 0, 1),
        prompt_ids=more(arrays.prompt_ids, 0),
        response_ids=more(arrays.response_ids, 0),
        response_mask=more(arrays.response_mask, 0),
        response_logprobs=more(arrays.response_logprobs, 0),
        advantages=more(arrays.advantages, 0),
        calls=more(arrays.calls, -1),
        policy_versions=more(arrays.policy_versions, -1),
        rollout_of_row=more(arrays.rollout_of_row, 0),
        images=[*arrays.images, ()],
    )
