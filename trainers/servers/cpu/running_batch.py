"""Sequences generated together: one forward pass gives each its next token.

Prompts are padded on the left, so that all next tokens stand in one column. New sequences join between two steps:
their keys and values are padded on the left to the same length and masked there, which changes no result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..chat_api.generation import Generation
from .sampler import sample

if TYPE_CHECKING:
    from ..chat_api.version import PolicyVersion

PADDING_ID = 0
"""Any token will do: padding is masked."""


class RunningBatch:
    """Sequences of one version that are under way.

    Attributes:
        version: the weights all of them use.
        rows: the sequences. ``_mask`` is int64 (rows, length), 1 where a row has a token; ``_last`` int64 (rows, 1)
            are the newest tokens, not yet in the cache; ``_positions`` int64 (rows, 1) their positions.
    """

    def __init__(self, version: PolicyVersion, rows: list[Generation]) -> None:
        self.version = version
        self.rows = rows
        self._cache: Any = None
        self._mask: Tensor = torch.empty(0)
        self._last: Tensor = torch.empty(0)
        self._positions: Tensor = torch.empty(0)

    @property
    def length(self) -> int:
        """Columns of the cache, padding included."""
        return int(self._mask.shape[1])

    @property
    def tokens(self) -> int:
        """Tokens of all rows, without padding."""
        return sum(row.length for row in self.rows)

    @torch.inference_mode()
    def start(self) -> None:
        """Read the prompts and the answers so far, equal ones once, and sample each row's next token."""
        from transformers import DynamicCache

        device = self.version.model.device
        prompt_of_row, prompts = _distinct([row.ids for row in self.rows])
        width = max(map(len, prompts))
        ids = torch.tensor([[PADDING_ID] * (width - len(p)) + p for p in prompts], device=device)
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        keeps_cache = any(row.tokens_max - len(row.token_ids) > 1 for row in self.rows)
        self._cache = DynamicCache() if keeps_cache else None
        logits = self._forward(ids, mask, positions)
        self._mask, self._positions = mask, positions[:, -1:]
        if len(prompts) < len(self.rows):
            rows = torch.tensor(prompt_of_row, device=device)
            logits, self._mask, self._positions = logits[rows], mask[rows], self._positions[rows]
            for layer in self._cache.layers if self._cache is not None else ():
                layer.keys, layer.values = layer.keys[rows], layer.values[rows]
        self._draw(logits)

    @torch.inference_mode()
    def step(self) -> None:
        """Sample every row's next token."""
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(self.rows), 1)], dim=1)
        self._positions = self._positions + 1
        self._draw(self._forward(self._last, self._mask, self._positions))

    @torch.inference_mode()
    def drop_finished(self) -> list[Generation]:
        """Take the rows out that are over, or go on with another version; returns them."""
        stays = [not row.is_over and row.job.version is self.version for row in self.rows]
        over = [row for row, does in zip(self.rows, stays, strict=True) if not does]
        if not over:
            return over
        kept = [index for index, does in enumerate(stays) if does]
        self.rows = [self.rows[index] for index in kept]
        if not kept:
            self._cache = None
            return over
        indices = torch.tensor(kept, device=self._mask.device)
        self._mask, self._last, self._positions = self._mask[indices], self._last[indices], self._positions[indices]
        blank = int(self._mask.argmax(dim=1).min())
        self._mask = self._mask[:, blank:]
        for layer in self._cache.layers:
            layer.keys = layer.keys[indices][:, :, blank:]
            layer.values = layer.values[indices][:, :, blank:]
        return over

    @torch.inference_mode()
    def join(self, other: RunningBatch) -> None:
        """Take over the rows of ``other``, which has the same version and is not used any more."""
        length = max(self.length, other.length)
        self._mask = torch.cat([_pad_left(self._mask, length), _pad_left(other._mask, length)])
        for mine, its in zip(self._cache.layers, other._cache.layers, strict=True):
            # The newest token of each row is not in the cache yet: caches are as long as the masks before it.
            mine.keys = torch.cat([_pad_cache(mine.keys, length), _pad_cache(its.keys, length)])
            mine.values = torch.cat([_pad_cache(mine.values, length), _pad_cache(its.values, length)])
        self._last = torch.cat([self._last, other._last])
        self._positions = torch.cat([self._positions, other._positions])
        self.rows = self.rows + other.rows

    def _forward(self, ids: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
        """Logits (rows, vocabulary) of the token after the last column; the cache grows by ``ids``."""
        output = self.version.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=self._cache is not None,
            logits_to_keep=1,
        )
        logits: Tensor = output.logits[:, -1]
        return logits

    def _draw(self, logits: Tensor) -> None:
        rows = self.rows
        drawn = sample(
            logits,
            [row.temperature for row in rows],
            [row.top_p for row in rows],
            [row.chance.random() for row in rows],
        )
        self._last = drawn.tokens[:, None]
        best = _best(drawn.distribution, rows)
        for index, (row, token, logprob) in enumerate(
            zip(rows, drawn.tokens.tolist(), drawn.logprobs.tolist(), strict=True)
        ):
            self._append(row, token, logprob, best[index] if best else [])

    def _append(self, row: Generation, token: int, logprob: float, best: list[tuple[int, float]]) -> None:
        if not logprob > float("-inf"):  # also true of NaN
            row.error = f"the weights of {self.version.name} give no probabilities (log-probability {logprob})"
            return
        if not row.runs or row.runs[-1][1] != self.version.number:
            row.runs.append((len(row.token_ids), self.version.number))
        row.logprobs.append(logprob)
        if row.top_logprobs:
            row.top.append(best[: row.top_logprobs])
        row.token_ids.append(token)
        if row.stop_watcher is not None:
            row.text_end = row.stop_watcher.find(row.token_ids)
        if token in self.version.end_ids or row.text_end is not None:
            row.finish_reason = "stop"
        elif len(row.token_ids) >= row.tokens_max:
            row.finish_reason = "length"
        row.ready = len(row.token_ids)


def _distinct(prompts: list[list[int]]) -> tuple[list[int], list[list[int]]]:
    """Index of each prompt among the distinct ones, and these: groups of samples ask the same question."""
    seen: dict[tuple[int, ...], int] = {}
    index = [seen.setdefault(tuple(prompt), len(seen)) for prompt in prompts]
    return index, [list(prompt) for prompt in seen]


def _best(distribution: Tensor, rows: Sequence[Generation]) -> list[list[tuple[int, float]]]:
    count = max(row.top_logprobs for row in rows)
    if count == 0:
        return []
    values, tokens = distribution.topk(min(count, distribution.shape[-1]), dim=-1)
    return [list(zip(t, v, strict=True)) for t, v in zip(tokens.tolist(), values.tolist(), strict=True)]


def _pad_left(mask: Tensor, length: int) -> Tensor:
    return torch.nn.functional.pad(mask, (length - mask.shape[1], 0))


def _pad_cache(states: Tensor, length: int) -> Tensor:
    return torch.nn.functional.pad(states, (0, 0, length - states.shape[2], 0))
