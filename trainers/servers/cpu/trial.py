"""Whether this server can generate with a model: sequences together give the same as each alone."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Any

import torch

from ..chat_api.generation import Generation, Job
from .running_batch import RunningBatch

LENGTHS = (5, 9, 7)
"""Tokens of the prompts: two that begin together, and one that joins them."""

TOKENS = 4
TOLERANCES = {torch.float64: 1e-5, torch.float32: 1e-3}
"""Type of the weights -> how far log-probabilities (natural logarithm) may lie apart."""
TOLERANCE_BY_DEFAULT = 0.25


@dataclass(frozen=True, slots=True)
class _OnTrial:
    """What generation needs of a version."""

    model: Any
    name: str = "the model"
    number: int = 0
    end_ids: frozenset[int] = frozenset()


def trial(model: Any) -> str | None:
    """Generate a few tokens with a cache, padding and a newcomer, and compare each with a pass over its tokens alone.

    Takes about ten small passes. The model is unchanged.

    Returns:
        What is wrong, in a phrase; ``None`` where nothing is.
    """
    version: Any = _OnTrial(model)
    vocabulary = int(model.config.get_text_config().vocab_size)
    rows = [_row(version, [(3 + 7 * (i + length)) % vocabulary for i in range(length)]) for length in LENGTHS]
    try:
        batch, newcomer = RunningBatch(version, rows[:2]), RunningBatch(version, rows[2:])
        batch.start()
        batch.step()
        newcomer.start()
        batch.join(newcomer)
        while batch.rows:
            batch.step()
            batch.drop_finished()
        failed = next((row.error for row in rows if row.error is not None), None)
        apart = 0.0 if failed else max(_apart(model, row) for row in rows)
    except (RuntimeError, ValueError, TypeError, AttributeError, IndexError, KeyError, NotImplementedError) as error:
        return f"it ends with {type(error).__name__}: {str(error).splitlines()[0] if str(error) else '-'}"
    if failed is not None:
        return failed
    most = TOLERANCES.get(model.dtype, TOLERANCE_BY_DEFAULT)
    if not apart <= most:  # also true of NaN
        return f"log-probabilities of sequences together lie {apart:.2g} from those of each alone"
    return None


def _row(version: Any, prompt_ids: list[int]) -> Generation:
    job = Job(version, streams=False, news=asyncio.Event())
    chance = random.Random(0)  # noqa: S311  # for a sample, no secret
    return Generation(
        job, prompt_ids, TOKENS, temperature=1.0, top_p=1.0, top_logprobs=0, chance=chance, stop_watcher=None
    )


@torch.inference_mode()
def _apart(model: Any, row: Generation) -> float:
    """The largest difference between what was recorded and one plain pass."""
    ids = torch.tensor([row.ids], device=model.device)
    logits = model(input_ids=ids, use_cache=False).logits[0, len(row.prompt_ids) - 1 : -1]
    alone = torch.log_softmax(logits.to(torch.float64), -1).gather(-1, ids[0, len(row.prompt_ids) :, None])[:, 0]
    return float((alone.cpu() - torch.tensor(row.logprobs, dtype=torch.float64)).abs().max())
