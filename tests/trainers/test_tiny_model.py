"""The tiny model: reproducible, readable by transformers, able to encode any text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lightstream.trainers.run.model.tiny_model import make_tiny_model


def test_same_seed_gives_same_weights_and_another_seed_others(tmp_path: Path) -> None:
    state = torch.get_rng_state()
    files = [
        (make_tiny_model(tmp_path / name, seed=seed) / "model.safetensors").read_bytes()
        for name, seed in [("a", 1), ("b", 1), ("c", 2)]
    ]
    assert files[0] == files[1] != files[2]
    assert torch.equal(state, torch.get_rng_state())


def test_any_text_is_encoded_byte_by_byte_and_back(tmp_path: Path) -> None:
    path = make_tiny_model(tmp_path, hidden_size=32, layers=1)
    tokenizer: Any = AutoTokenizer.from_pretrained(path)
    model: Any = AutoModelForCausalLM.from_pretrained(path)
    text = "say 7: é ∀ 漢 \x00 <end>\n\t."
    ids = tokenizer(text).input_ids
    assert len(ids) == len(text.encode())
    assert tokenizer.decode(ids) == text
    assert max(ids) < len(tokenizer) <= model.config.vocab_size


def test_chat_template_takes_tool_calls_and_parts(tmp_path: Path) -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(make_tiny_model(tmp_path, hidden_size=32, layers=1))
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    text = tokenizer.apply_chat_template(
        [
            {"role": "user", "content": [{"type": "text", "text": "hi "}, {"type": "text", "text": "you"}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "2"},
        ],
        tools=[{"type": "function", "function": {"name": "add"}}],
        tokenize=False,
        add_generation_prompt=True,
    )
    assert text == (
        '<|im_start|>tools\n{"name": "add"}<|im_end|>\n'
        "<|im_start|>user\nhi you<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call><|im_end|>\n'
        "<|im_start|>tool\n2<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_size_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="multiple of 32, not 48"):
        make_tiny_model(tmp_path, hidden_size=48)
