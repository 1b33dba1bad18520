"""Options that spare memory: the update is that of a training without them."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from lightstream.schemas.errors import TrainingError
from lightstream.trainers import VERL, make_tiny_model
from lightstream.trainers.engines.verl.chunked_logits import check_chunks, compute_logits_in_chunks
from lightstream.trainers.engines.verl.engine import VerlEngine
from lightstream.trainers.engines.verl.tensors import micro_batches
from tests.support.forked import run_forked

from .support.logits_memory import LOGITS_BYTES
from .support.ranks import ROOT, TIMEOUT_S, batch, call_in_ranks

PLAIN: dict[str, Any] = {"entropy_coefficient": 0.01, "kl_loss_coefficient": 0.1, "temperature": 0.7}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"))


def gradients(model: Path, **changes: Any) -> tuple[dict[str, float], dict[str, torch.Tensor]]:
    """The metrics of an update, and its gradients."""
    config = VERL(model=model, steps=20, learning_rate=3e-3, device="cpu", threads=1, **(PLAIN | changes))
    engine = VerlEngine(config, model)
    found: dict[str, torch.Tensor] = {}

    def keep() -> None:
        found.update({name: p.grad.full_tensor().clone() for name, p in engine.module.named_parameters()})

    engine.models.actor.before_each_step(keep)
    return engine.update(batch(0)), found


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"chunked_logits": True}, id="chunks"),
        pytest.param({"chunked_logits": True, "packed_rows": True}, id="chunks, packed"),
        pytest.param({"packed_rows": True}, id="packed"),
        pytest.param({"rows_per_micro_batch": 1}, id="row by row"),
        pytest.param({"offload_parameters": True, "offload_optimizer": True, "offload_reference": True}, id="offload"),
    ],
)
def test_the_gradient_is_the_same(model: Path, changes: dict[str, Any]) -> None:
    plain, expected = gradients(model)
    metrics, found = gradients(model, **changes)
    assert found.keys() == expected.keys() != set()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-6, atol=1e-6, msg=name)
    for name in ("actor/pg_loss", "actor/entropy", "actor/kl_loss", "grad_norm"):
        np.testing.assert_allclose(metrics[name], plain[name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_two_processes_compute_in_chunks_what_one_computes_whole(model: Path, tmp_path: Path) -> None:
    plain = VERL(model=model, steps=20, learning_rate=3e-3, device="cpu", threads=1)
    metrics = VerlEngine(plain, model).update(batch(0), policy_version=0, seed=(0,))
    chunked = replace(plain, chunked_logits=True).as_json()
    for _, (_, found) in call_in_ranks(2, chunked, model, [["update", 0]], tmp_path / "work"):
        for name, value in found.items():
            np.testing.assert_allclose(value, metrics[name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_chunks_take_little_of_what_the_logits_would() -> None:
    """Bytes that a pass with gradients grows by, more than one that has no logits."""
    arguments = ["-m", "tests.trainers.support.logits_memory"]
    ended = run_forked(arguments, dict(os.environ) | {"PYTHONPATH": str(ROOT)}, ROOT, TIMEOUT_S)
    assert ended.returncode == 0, ended.stderr
    without, in_chunks, whole = json.loads(ended.stdout)
    assert whole - without >= LOGITS_BYTES, "what the chunks are measured against"
    assert in_chunks - without <= 0.3 * LOGITS_BYTES


def test_a_model_that_changes_its_logits_is_refused() -> None:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    config, new = cast("Any", Gemma2Config), cast("Any", Gemma2ForCausalLM)
    size = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "head_dim": 16}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 264}
    capped = new(config(**size, **heads, final_logit_softcapping=0.1))
    compute_logits_in_chunks(capped)
    with pytest.raises(TrainingError, match="Gemma2ForCausalLM cannot be computed in chunks"):
        check_chunks(capped, dtype="float32")


def test_rows_of_a_micro_batch_are_bounded() -> None:
    assert micro_batches([5, 5, 5, 5, 5], 100, rows_max=2) == [[0, 1], [2, 3], [4]]
    assert micro_batches([5, 5, 5, 5, 5], 100) == [[0, 1, 2, 3, 4]]
    assert micro_batches([5, 5, 5], 9, packed=True, rows_max=2) == [[0], [1], [2]]
