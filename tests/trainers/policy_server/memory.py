"""A tiny model that has learnt by heart what to answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lightstream.trainers.run.model.tiny_model import make_tiny_model

STEPS_MAX = 600
SURE = 0.02
"""Loss of a token, at most, at which each is far likelier than any other."""


def learn_by_heart(
    folder: Path, answers: Mapping[str, str], tools: Sequence[dict[str, Any]] | None = None, *, hidden_size: int = 64
) -> Path:
    """Write a model that answers each of these messages, with these tools, with the text given (greedily)."""
    make_tiny_model(folder, hidden_size=hidden_size)
    load: Any = AutoModelForCausalLM.from_pretrained
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model: Any = load(folder, dtype=torch.float32).train()
    rows: list[tuple[list[int], list[int]]] = []
    for message, answer in answers.items():
        messages = [{"role": "user", "content": message}]
        text = tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True, tokenize=False)
        asked, told = (tokenizer.encode(part, add_special_tokens=False) for part in (text, answer))
        rows.append((asked, [*told, tokenizer.eos_token_id]))
    length = max(len(prompt) + len(answer) for prompt, answer in rows)
    inputs, labels = torch.zeros(len(rows), length, dtype=torch.int64), torch.full((len(rows), length), -100)
    for row, (prompt, answer_ids) in enumerate(rows):
        inputs[row, : len(prompt) + len(answer_ids)] = torch.tensor([*prompt, *answer_ids])
        labels[row, len(prompt) : len(prompt) + len(answer_ids)] = torch.tensor(answer_ids)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    loss: Any = None
    for _ in range(STEPS_MAX):
        logits = model(input_ids=inputs).logits  # rows end with what nobody looks at: no mask is needed
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        if loss.item() < SURE:
            model.save_pretrained(folder)
            return folder
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    raise AssertionError(f"not learnt by heart: the loss is {loss.item():.3f}")
