"""Flat arrays as the TensorDict that verl's engine takes: jagged nested tensors, made without a loop over rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..batch import BatchArrays

__all__ = ["select_mini_batches", "to_tensordict"]


def to_tensordict(
    arrays: BatchArrays, advantages: npt.NDArray[np.float32], compared: npt.NDArray[np.bool_], **settings: Any
) -> Any:
    """A batch for verl's ``TrainingWorker``.

    Args:
        arrays: N rows.
        advantages: float32 (N,); each of a row's tokens gets the row's.
        compared: bool (N,): rows whose sampled log-probabilities are to be compared with the actor's.
        settings: non-tensor values for verl (temperature, …).
    """
    import torch
    from verl.utils import tensordict_utils

    def offsets(lengths: npt.NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]))

    prompts = offsets(arrays.prompt_lengths)
    responses = offsets(arrays.response_lengths)
    sequences = prompts + responses

    def jagged(values: npt.NDArray[Any], at: torch.Tensor) -> torch.Tensor:
        lengths = at.diff()
        nested: torch.Tensor = torch.nested.nested_tensor_from_jagged(
            torch.from_numpy(values),
            at,
            # Without these, padding would go to the sum of the lengths.
            min_seqlen=int(lengths.min()),
            max_seqlen=int(lengths.max()),
        )
        return nested

    tensors: dict[str, Any] = {
        "prompts": jagged(arrays.prompt_ids, prompts),
        "responses": jagged(arrays.response_ids, responses),
        "input_ids": jagged(arrays.input_ids, sequences),
        "position_ids": jagged(arrays.position_ids, sequences),
        "response_mask": jagged(arrays.response_mask, responses),
        "loss_mask": jagged(arrays.response_mask, responses),
        "old_log_probs": jagged(arrays.response_logprobs, responses),
        "advantages": jagged(np.repeat(advantages, arrays.response_lengths), responses),
        "compared": torch.from_numpy(compared.copy()),
    }
    return tensordict_utils.get_tensordict(tensors, non_tensor_dict=settings)


def select_mini_batches(rows: int, mini_batches: int, seed: int) -> list[list[int]]:
    """Rows 0 … ``rows`` - 1, shuffled, in at most ``mini_batches`` parts that differ by one row at most.

    No row is left out and none is in two parts. A single part keeps the order.
    """
    if mini_batches <= 1 or rows <= 1:
        return [list(range(rows))] if rows else []
    order: npt.NDArray[np.int64] = np.random.default_rng(seed).permutation(rows)
    return [part.tolist() for part in np.array_split(order, min(mini_batches, rows))]
