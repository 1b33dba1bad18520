"""Sampling: the right distribution, the right log-probability, and no influence of a row's neighbours."""

from __future__ import annotations

import random

import pytest
import torch

from lightstream.trainers.servers.cpu.sampler import sample


def _logits(rows: int, seed: int = 0, vocabulary: int = 50) -> torch.Tensor:
    return torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed)) * 3


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_logprobs_are_those_of_the_distribution_at_the_temperature(temperature: float) -> None:
    logits = _logits(64)
    drawn = sample(logits, [temperature] * 64, [1.0] * 64, [random.random() for _ in range(64)])
    expected = torch.log_softmax(logits.float() / temperature, -1).gather(-1, drawn.tokens[:, None])[:, 0]
    assert torch.allclose(drawn.logprobs, expected, atol=1e-6)


def test_frequencies_follow_the_probabilities() -> None:
    count = 20_000
    logits = _logits(1, vocabulary=8).expand(count, 8)
    uniforms = [(i + 0.5) / count for i in range(count)]  # a grid: no chance left
    drawn = sample(logits, [1.0] * count, [1.0] * count, uniforms)
    frequencies = torch.bincount(drawn.tokens, minlength=8) / count
    assert torch.allclose(frequencies.float(), torch.softmax(logits[0], -1), atol=2e-4)


def test_top_p_keeps_the_fewest_best_tokens_and_renormalises() -> None:
    probabilities = torch.tensor([[0.15, 0.5, 0.05, 0.3]])
    count = 1000
    rows = probabilities.log().expand(count, 4)
    drawn = sample(rows, [1.0] * count, [0.7] * count, [i / count for i in range(count)])
    assert set(drawn.tokens.tolist()) == {1, 3}  # 0.5 alone is short of 0.7
    assert drawn.distribution[0].exp().tolist() == pytest.approx([0, 0.625, 0, 0.375], abs=1e-6)
    tiny = sample(rows[:1], [1.0], [1e-6], [0.999])
    assert tiny.tokens.item() == 1
    assert tiny.logprobs.item() == pytest.approx(0.0)


def test_greedy_rows_take_the_best_token_and_report_the_model_s_own_logprob() -> None:
    logits = _logits(3)
    drawn = sample(logits, [0.0, 1.0, 0.0], [0.1, 1.0, 1.0], [0.9, 0.9, 0.9])
    best = logits.argmax(-1)
    assert drawn.tokens[[0, 2]].tolist() == best[[0, 2]].tolist()
    expected = torch.log_softmax(logits, -1)[[0, 2], best[[0, 2]]]
    assert torch.allclose(drawn.logprobs[[0, 2]], expected, atol=1e-6)


def test_a_row_s_token_does_not_depend_on_the_rows_beside_it() -> None:
    logits, uniforms = _logits(16), [random.Random(i).random() for i in range(16)]
    temperatures, top_ps = [0.0, 0.7, 1.0, 1.3] * 4, [1.0, 0.9, 0.5, 1.0] * 4
    together = sample(logits, temperatures, top_ps, uniforms)
    for row in range(16):
        alone = sample(
            logits[row : row + 1], temperatures[row : row + 1], top_ps[row : row + 1], uniforms[row : row + 1]
        )
        assert alone.tokens.item() == together.tokens[row].item()
        assert alone.logprobs.item() == pytest.approx(together.logprobs[row].item(), abs=1e-6)


@pytest.mark.parametrize("uniform", [0.0, 1.0 - 2.0**-53])
def test_the_ends_of_the_interval_never_give_an_impossible_token(uniform: float) -> None:
    logits = torch.tensor([[float("-inf"), 1.0, 2.0, float("-inf")]])
    drawn = sample(logits, [1.0], [1.0], [uniform])
    assert drawn.tokens.item() in (1, 2)
    assert drawn.logprobs.isfinite().all()
