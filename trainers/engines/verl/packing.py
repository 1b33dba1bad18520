"""Whether a model keeps rows apart that stand one after another in one long row.

Attention does, by our kernel. A recurrence or a convolution over the tokens does not: its state goes on into the next
row, unless the layer is told where rows begin, and verl tells it nothing.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from lightstream.schemas.errors import TrainingError

logger = logging.getLogger(__name__)

FIRST, SECOND = 9, 7
"""Tokens of the two rows: one is no multiple of the other, and of no kernel's block."""

TOLERANCES = {"float32": (1e-4, 1e-3)}
"""Type of the forward pass -> largest change of the second row by another first row, and largest difference from the
second row alone, each as a part of the largest output."""
TOLERANCES_BY_DEFAULT = (1e-2, 0.1)

ATTENTION = {"full_attention", "sliding_attention", "chunked_attention", "attention"}
RECURRENT = ("mamba", "conv", "linear_", "ssm", "rwkv", "lru_", "state_size", "time_step")
"""Beginnings of names by which configurations describe layers that are no attention."""


def keeps_rows_apart(module: Any, *, dtype: str) -> bool:
    """Whether two packed rows have the outputs of single ones. Two small passes without gradients.

    Args:
        module: the model as it is trained, with the attention for packed rows.
        dtype: of the forward pass.
    """
    import torch

    changed_max, different_max = TOLERANCES.get(dtype, TOLERANCES_BY_DEFAULT)
    device = next(module.parameters()).device
    vocabulary = int(module.config.get_text_config().vocab_size)
    ids = torch.arange(1, 1 + 2 * FIRST + SECOND, device=device) * 7 % vocabulary
    first, other, second = ids[:FIRST], ids[FIRST : 2 * FIRST], ids[2 * FIRST :]
    training = module.training
    module.eval()

    def outputs(*rows: Any) -> Any:
        positions = torch.cat([torch.arange(len(row), device=device) for row in rows])[None]
        with torch.no_grad(), torch.autocast(device.type, getattr(torch, dtype), enabled=dtype != "float32"):
            found = module(
                input_ids=torch.cat(rows)[None], attention_mask=None, position_ids=positions, use_cache=False
            )
        return found.logits[0, -SECOND:].float()

    try:
        alone, packed, after_another = outputs(second), outputs(first, second), outputs(other, second)
    except TrainingError as error:
        logger.warning("%s Its rows are padded instead, which takes longer.", error.message)
        return False
    finally:
        module.train(training)
    largest = float(alone.abs().max()) or 1.0
    changed = float((packed - after_another).abs().max()) / largest
    different = float((packed - alone).abs().max()) / largest
    apart = changed <= changed_max and different <= different_max  # NaN is neither
    if not apart:
        logger.warning(
            "rows of %s cannot be packed (a row changes by %.2g after another one, and differs by %.2g from the row "
            "alone): they are padded instead, which takes longer",
            type(module).__name__,
            changed,
            different,
        )
    return apart


def is_known_to_keep_rows_apart(folder: Path) -> bool:
    """Whether a model's configuration names attention alone, where the model itself cannot be asked."""
    from transformers import AutoConfig

    load: Any = AutoConfig.from_pretrained
    config = load(folder).get_text_config()
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or ["attention"]
    described = config.to_dict()
    recurs = any(name.startswith(RECURRENT) and value is not None for name, value in described.items())
    return ATTENTION.issuperset(kinds) and not recurs
