"""Attention among rows that stand one after another in one long row, which transformers calls by a name.

verl packs rows this way (``use_remove_padding``), and leaves it to flash-attn to keep them apart. torch has the same
kernel (``torch.nn.attention.varlen``, since 2.10), so that nothing has to be built.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from lightstream.schemas.errors import TrainingError

PACKED_ATTENTION = "lightstream_packed"
"""The name to load a model with (``attn_implementation``)."""

_CHANGES_THE_RESULT = (
    "softcap",
    "s_aux",
    "sinks",
    "position_bias",
    "attention_bias",
    "alibi",
    "head_mask",
    "chunk_size",
)
"""Arguments of transformers' models for which another attention is needed."""

KERNEL_TYPES = (torch.bfloat16, torch.float16)


def add_packed_attention() -> None:
    """Make it known to transformers. May be called again."""
    from transformers import AttentionInterface

    AttentionInterface.register(PACKED_ATTENTION, packed_attention)


def packed_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    position_ids: Tensor | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Causal attention within each row; a row begins wherever a position is 0.

    Args:
        module: the layer; unused.
        query: (1, heads, T, size). ``key`` and ``value`` may have fewer heads, a divisor of them.
        attention_mask: unused: there is no padding.
        position_ids: int64 (1, T).
        scaling: of the products; ``None``: one by the root of ``size``.
        dropout: must be 0.
        sliding_window: tokens that a token sees, itself included; ``None``: all before it.

    Returns:
        (1, T, heads, size), and no weights. On a GPU, in bfloat16 or float16, by torch's kernel for rows of different
        lengths (FlashAttention, arXiv:2307.08691); elsewhere row by row.

    Raises:
        TrainingError: there is a dropout, or something else that this attention lacks (a cap of the products, sinks, a
            bias); or the model does not tell its attention the positions.
    """
    lacking = sorted(name for name in _CHANGES_THE_RESULT if others.get(name) is not None)
    if dropout or lacking or position_ids is None:
        what = "has dropout in its attention" if dropout else "does not hand the positions to its attention"
        if lacking:
            what = f"has an attention with {', '.join(lacking)}, which the one for packed rows lacks"
        raise TrainingError(
            f"the model ({type(module).__name__}) {what}, so that rows cannot be packed.",
            next_step='Set attention_dropout to 0 in its config.json, or train it with dtype="float32".',
        )
    starts, lengths = _rows(position_ids)
    rows: list[Any] = [query[0], key[0], value[0]]  # each (heads, T, size)
    groups = key.shape[1] != query.shape[1]
    if query.is_cuda and query.dtype in KERNEL_TYPES:
        from torch.nn.attention.varlen import varlen_attn

        untyped: Any = varlen_attn  # its signature differs between versions of torch
        window = (-1 if sliding_window is None else sliding_window - 1, 0)
        tokens = [states.transpose(0, 1).contiguous() for states in rows]
        longest = max(lengths)
        return untyped(*tokens, starts, starts, longest, longest, scale=scaling, window_size=window, enable_gqa=groups)[
            None
        ], None
    parts = zip(*(states.split(lengths, dim=1) for states in rows), strict=True)
    done = [_one_row(q, k, v, scaling, sliding_window) for q, k, v in parts]
    return torch.cat(done, dim=1).transpose(0, 1)[None], None


def _one_row(query: Tensor, key: Tensor, value: Tensor, scaling: float | None, window: int | None) -> Tensor:
    length, groups = query.shape[1], key.shape[0] != query.shape[0]
    if window is None or window >= length:
        return scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=groups)
    seen = torch.ones(length, length, dtype=torch.bool, device=query.device).tril().triu(1 - window)
    return scaled_dot_product_attention(query, key, value, attn_mask=seen, scale=scaling, enable_gqa=groups)


@lru_cache(maxsize=1)  # all layers of a pass have the same tensor, and reading it waits for the GPU
def _rows(position_ids: Tensor) -> tuple[Tensor, list[int]]:
    """The places where rows begin, with the end of the last, int32 (rows + 1,); and their lengths."""
    positions = position_ids.flatten()
    starts = (positions == 0).nonzero().flatten()
    starts = torch.cat([starts, starts.new_tensor([len(positions)])])
    return starts.to(torch.int32), starts.diff().tolist()
