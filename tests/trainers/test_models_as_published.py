"""Models as people have them: tiny ones of several architectures, packed and padded, and their folders' own files."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from lightstream.schemas.errors import TrainingError
from lightstream.trainers import VERL, make_tiny_model
from lightstream.trainers.engines.verl.engine import VerlEngine
from lightstream.trainers.engines.verl.initial import write_initial_model
from lightstream.trainers.rollouts.batch import BatchArrays, build_arrays, select_rows
from lightstream.trainers.rollouts.groups import Group
from lightstream.trainers.servers.cpu.checkpoint import load_model

from .support.trajectories import random_trajectory

SIZES = {
    "vocab_size": 264, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 32, "max_position_embeddings": 512, "bos_token_id": 0, "eos_token_id": 2,
    "pad_token_id": 0,
}  # fmt: skip
MIXTURE = {"moe_intermediate_size": 32, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2}
WINDOWS = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
RECURRENT = {
    "layer_types": ["linear_attention", "full_attention"], "linear_num_value_heads": 2, "linear_num_key_heads": 2,
    "linear_key_head_dim": 16, "linear_value_head_dim": 16,
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "qwen2": {}, "qwen3": {}, "llama": {}, "mistral": {"sliding_window": 4}, "gemma": {},
    "gemma2": WINDOWS | {"attn_logit_softcapping": 0.05, "query_pre_attn_scalar": 4},
    "gemma3_text": WINDOWS, "phi": {}, "phi3": {}, "olmo2": {}, "granite": {}, "starcoder2": {}, "smollm3": {},
    "glm4": {}, "cohere2": WINDOWS, "stablelm": {}, "gpt_neox": {}, "exaone4": WINDOWS, "qwen3_moe": MIXTURE,
    "mixtral": MIXTURE, "gpt_oss": MIXTURE | WINDOWS, "granitemoe": MIXTURE,
}  # fmt: skip
NOT_SERVED: dict[str, dict[str, Any]] = {
    "lfm2": {"layer_types": ["conv", "full_attention"], "block_multiple_of": 32},
    "qwen3_next": MIXTURE | RECURRENT,
    "qwen3_5_text": RECURRENT,
}
"""Models that the actor trains, padded, and the policy server refuses."""


def model_folder(tmp_path: Path, kind: str) -> Path:
    """A tiny model of this kind with large weights, as ``save_pretrained`` writes it, and version 0 made of it."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    untyped: Any = AutoModelForCausalLM
    model = untyped.from_config(AutoConfig.for_model(kind, **SIZES | (KINDS | NOT_SERVED)[kind])).float()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    folder, start = tmp_path / "model", tmp_path / "start"
    model.save_pretrained(folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(make_tiny_model(tmp_path / "tiny"))
    tokenizer.save_pretrained(folder)
    start.mkdir()
    write_initial_model(VERL(model=folder, steps=1, threads=1, device="cpu"), start, seed=0)
    return start


def batch_of(served: Any) -> BatchArrays:
    """Rows with the log-probabilities that a served model gives each token."""
    rollouts = tuple(
        random_trajectory(f"a-{i}", group_id="a", group_size=4, run_id="run", policy_version=0) for i in range(4)
    )
    arrays = build_arrays(select_rows([Group("a", rollouts)]))
    if served is None:
        return arrays
    logprobs: list[torch.Tensor] = []
    with torch.inference_mode():
        end = 0
        for prompt, response in zip(arrays.prompt_lengths.tolist(), arrays.response_lengths.tolist(), strict=True):
            begin, end = end, end + prompt + response
            ids = torch.from_numpy(arrays.input_ids[begin:end])[None]
            scores = torch.log_softmax(served(input_ids=ids, use_cache=False).logits[0].float(), -1)
            logprobs.append(scores[prompt - 1 : -1].gather(-1, ids[0, prompt:, None])[:, 0])
    sampled = torch.cat(logprobs).numpy() * arrays.response_mask
    return replace(arrays, response_logprobs=sampled.astype("float32"))


@pytest.mark.parametrize("kind", [*KINDS, *NOT_SERVED])
def test_actor_packed_and_padded_and_sampler_agree(tmp_path: Path, kind: str) -> None:
    """Where the sampler would not, it says so and what to use, and serves nothing."""
    start = model_folder(tmp_path, kind)
    served = None
    if kind in KINDS:
        served = load_model(start, torch.device("cpu"), torch.float32)
    else:
        with pytest.raises(TrainingError, match=r"the policy server cannot serve .* vLLM"):
            load_model(start, torch.device("cpu"), torch.float32)
    arrays = batch_of(served)
    config = VERL(model=start, steps=2, learning_rate=1e-2, device="cpu", threads=1, tokens_per_micro_batch=100_000)
    config = replace(config, logprob_gap_max=math.inf)
    padded, packed = (VerlEngine(config, start, packs=packs).update(arrays, seed=(1,)) for packs in (False, True))
    for name in ("logprob_diff_mean", "grad_norm"):
        assert packed[name] == pytest.approx(padded[name], rel=1e-4, abs=1e-4), name
    if served is not None:
        assert max(padded["logprob_diff_max"], packed["logprob_diff_max"]) < 1e-4


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
