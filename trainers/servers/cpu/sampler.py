"""Sampling one token per row, with the log-probability of each under the distribution it was drawn from."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BELOW_ONE = 1.0 - 2.0**-40
"""Keeps ``uniform * total`` under ``total`` after rounding, so that the search ends on a token with probability."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """One token per row.

    Attributes:
        tokens: int64 (rows,).
        logprobs: float32 or float64 (rows,), of the sampling distribution: the model's own at temperature 1 and
            top-p 1, rescaled by temperature and renormalised over the nucleus otherwise. A greedy row (temperature 0)
            reports the model's own, as its sampling distribution says nothing.
        distribution: float32 or float64 (rows, vocabulary), log-probabilities of all tokens.
    """

    tokens: Tensor
    logprobs: Tensor
    distribution: Tensor


def sample(logits: Tensor, temperatures: list[float], top_ps: list[float], uniforms: list[float]) -> Sampled:
    """Draw one token per row by inverting the cumulative distribution.

    Args:
        logits: (rows, vocabulary), any float type; float64 stays, all others are taken as float32.
        temperatures: one per row; 0 takes the best token.
        top_ps: one per row, in (0, 1].
        uniforms: one per row, in [0, 1): the only source of chance, so a row's token does not depend on its batch.
    """
    scores = logits if logits.dtype == torch.float64 else logits.float()
    if any(t not in (0.0, 1.0) for t in temperatures):
        scale = torch.tensor([t or 1.0 for t in temperatures], dtype=scores.dtype, device=scores.device)
        scores = scores / scale[:, None]
    distribution = torch.log_softmax(scores, dim=-1)
    if any(p < 1.0 and t > 0.0 for p, t in zip(top_ps, temperatures, strict=True)):
        limits = [p if t > 0.0 else 1.0 for p, t in zip(top_ps, temperatures, strict=True)]
        distribution = _nucleus(distribution, torch.tensor(limits, dtype=scores.dtype, device=scores.device))
    if all(t == 0.0 for t in temperatures):
        tokens = distribution.argmax(dim=-1)
    else:
        cumulative = distribution.double().exp().cumsum(dim=-1)
        draws = torch.tensor(uniforms, dtype=torch.float64, device=scores.device) * BELOW_ONE
        tokens = torch.searchsorted(cumulative, (draws * cumulative[:, -1])[:, None], right=True)[:, 0]
        tokens = tokens.clamp(max=distribution.shape[-1] - 1)
        if any(t == 0.0 for t in temperatures):
            greedy = torch.tensor([t == 0.0 for t in temperatures], device=scores.device)
            tokens = torch.where(greedy, distribution.argmax(dim=-1), tokens)
    return Sampled(tokens, distribution.gather(-1, tokens[:, None])[:, 0], distribution)


def _nucleus(distribution: Tensor, top_ps: Tensor) -> Tensor:
    """Keep, per row, the fewest best tokens whose probabilities reach ``top_ps``, and renormalise."""
    ordered, order = distribution.sort(dim=-1, descending=True)
    probabilities = ordered.exp()
    mass_before = probabilities.cumsum(dim=-1) - probabilities
    cut = mass_before >= top_ps[:, None]
    cut[:, 0] = False
    cut &= (top_ps < 1.0)[:, None]
    kept = ordered.masked_fill(cut, float("-inf"))
    return torch.log_softmax(torch.empty_like(kept).scatter_(-1, order, kept), dim=-1)
