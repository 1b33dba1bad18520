"""Flat arrays as the TensorDict that verl's engine takes: jagged nested tensors, made without a loop over rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...rollouts.batch import BatchArrays
from .images import RowImages

REFERENCE = "ref_log_prob"
"""Name, in a batch for verl, of the reference's log-probabilities."""

PADDING_MAX = 0.1
"""Of a micro-batch's real tokens."""

SMALL_PADDING = 1 / 32
"""Of the limit of a micro-batch: less padding than this costs less than one more pass."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Inputs, besides tokens, of a model that looks at images.

    Attributes:
        positions: int64 (4, tokens): of the text; time, height and width.
        images: of each row; ``None`` where it has none.
    """

    positions: npt.NDArray[np.int64]
    images: Sequence[RowImages | None]


def to_tensordict(
    arrays: BatchArrays,
    weights: npt.NDArray[np.float64],
    compared: npt.NDArray[np.bool_],
    further: Mapping[str, npt.NDArray[np.float32]] | None = None,
    seen: Seen | None = None,
    **settings: Any,
) -> Any:
    """A batch for verl's ``TrainingWorker``.

    Args:
        arrays: N rows with sum R response tokens.
        weights: float64 (sum R,): weight of each response token in the loss.
        compared: bool (sum R,): tokens whose sampled log-probabilities are to be compared with the actor's.
        further: name -> float32 (sum R,): what else a loss looks at, of each response token (:data:`REFERENCE`, …).
        seen: of a model that looks at images.
        settings: non-tensor values for verl (temperature, …).
    """
    import torch
    from verl.utils import tensordict_utils

    def offsets(lengths: npt.NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]))

    prompts = offsets(arrays.prompt_lengths)
    responses = offsets(arrays.response_lengths)
    sequences = prompts + responses

    def jagged(values: npt.NDArray[Any], at: torch.Tensor, dimension: int = 1) -> torch.Tensor:
        lengths = at.diff()
        nested: torch.Tensor = torch.nested.nested_tensor_from_jagged(
            torch.from_numpy(values),
            at,
            jagged_dim=dimension,
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
        "advantages": jagged(arrays.advantages, responses),
        "weights": jagged(weights.astype(np.float32), responses),
        "compared": jagged(compared.astype(np.int64), responses),
    }
    tensors |= {name: jagged(values, responses) for name, values in (further or {}).items()}
    if seen is not None:
        tensors["position_ids"] = jagged(seen.positions, sequences, dimension=2)
        tensors["multi_modal_inputs"] = list(seen.images)
    return tensordict_utils.get_tensordict(tensors, non_tensor_dict=settings)


def micro_batches(
    lengths: Sequence[int], tokens_max: int, *, packed: bool = False, rows_max: int | None = None
) -> list[list[int]]:
    """Rows in parts that are computed at once, the longest first; each row is in exactly one.

    A part's padded tokens (rows * its longest) are at most ``tokens_max``, unless it is one row, and its padding is at
    most a tenth of its real tokens, or negligible. Where rows are ``packed``, there is no padding. It has at most
    ``rows_max`` rows.
    """
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    parts: list[list[int]] = []
    longest = real = 0
    for row in order:
        length = lengths[row]
        if parts and (rows_max is None or len(parts[-1]) < rows_max):
            computed = real + length if packed else (len(parts[-1]) + 1) * longest
            padding = 0 if packed else computed - real - length
            if computed <= tokens_max and padding <= max(PADDING_MAX * (real + length), SMALL_PADDING * tokens_max):
                parts[-1].append(row)
                real += length
                continue
        parts.append([row])
        longest = real = length
    return parts
