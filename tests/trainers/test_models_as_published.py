"""Models as people have them: tiny ones of several architectures, packed and padded, and their folders' own files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lightstream.trainers import VERL, make_tiny_model
from lightstream.trainers.batch import build_arrays, select_rows
from lightstream.trainers.groups import Group
from lightstream.trainers.verl_in_process.engine import VerlEngine
from lightstream.trainers.verl_in_process.initial import write_initial_model

from .support.trajectories import random_trajectory

SIZES = {
    "vocab_size": 264, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 32, "max_position_embeddings": 512, "bos_token_id": 0, "eos_token_id": 2,
    "pad_token_id": 0,
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "qwen2": {},
    "qwen3": {},
    "llama": {},
    "gemma2": {"attn_logit_softcapping": 0.05, "query_pre_attn_scalar": 4},
    "lfm2": {"layer_types": ["conv", "full_attention"], "block_multiple_of": 32},
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_update_is_the_same_packed_and_padded(tmp_path: Path, kind: str) -> None:
    """Of models that keep rows apart as of those that do not."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    untyped: Any = AutoModelForCausalLM
    model = untyped.from_config(AutoConfig.for_model(kind, **SIZES | KINDS[kind])).float()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    folder, start = tmp_path / "model", tmp_path / "start"
    model.save_pretrained(folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(make_tiny_model(tmp_path / "tiny"))
    tokenizer.save_pretrained(folder)
    start.mkdir()
    write_initial_model(VERL(model=folder, steps=1, threads=1, device="cpu"), start, seed=0)
    rollouts = tuple(
        random_trajectory(f"a-{i}", group_id="a", group_size=4, run_id="run", policy_version=0) for i in range(4)
    )
    arrays = build_arrays(select_rows([Group("a", rollouts)]))
    config = VERL(model=start, steps=2, learning_rate=1e-2, device="cpu", threads=1, tokens_per_micro_batch=100_000)
    padded, packed = (VerlEngine(config, start, packs=packs).update(arrays, seed=(1,)) for packs in (False, True))
    for name in ("logprob_diff_mean", "grad_norm"):
        assert packed[name] == pytest.approx(padded[name], rel=1e-4), name


def test_sampling_options_of_the_folder_play_no_part(tmp_path: Path) -> None:
    model, out = make_tiny_model(tmp_path / "model"), tmp_path / "out"
    out.mkdir()
    file = model / "generation_config.json"
    told = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps(told | {"temperature": 0.6, "top_p": 0.9}), "utf-8")
    write_initial_model(VERL(model=model, steps=1, threads=1), out, seed=0)
    written = json.loads((out / "generation_config.json").read_text("utf-8"))
    assert not {"temperature", "top_p"} & {name for name, value in written.items() if value is not None}
    assert written["eos_token_id"] == told["eos_token_id"]
