"""A program that prints by how many bytes passes with gradients make it grow: without logits, with all, in chunks."""

from __future__ import annotations

import json
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from lightstream.trainers.engines.verl.chunked_logits import compute_logits_in_chunks

from .ranks import Peak

ROWS, LENGTH, VOCABULARY = 16, 1024, 4096
LOGITS_BYTES = ROWS * LENGTH * VOCABULARY * 4


def main() -> None:
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
    )
    new: Any = Qwen2ForCausalLM
    model = new(config)
    compute_logits_in_chunks(model)
    ids = torch.arange(ROWS * LENGTH).reshape(ROWS, LENGTH) % VOCABULARY

    def without() -> None:
        model.model(ids, use_cache=False).last_hidden_state.sum().backward()

    def whole() -> None:
        logits = model(input_ids=ids, use_cache=False).logits
        logits.log_softmax(-1).gather(-1, ids[..., None]).sum().backward()

    def in_chunks() -> None:
        model(input_ids=ids, temperature=1.0, return_dict=True).log_probs.sum().backward()

    without()  # what the first pass loads is not measured
    grown: list[int] = []
    for run in (without, in_chunks, whole):
        model.zero_grad()
        with Peak() as peak:
            run()
        grown.append(peak.bytes)
    print(json.dumps(grown))


if __name__ == "__main__":
    main()
