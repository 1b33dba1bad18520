"""The model of the demonstration: tiny, random, made on the spot, and taught for seconds to answer with letters.

Without that warm-up its answers are random bytes and almost never a tool's letter, so there is nothing to reward. The
letters it is taught are random too: which one is right, only the rewards tell.
"""

from __future__ import annotations

import random
from pathlib import Path

from lightstream.trainers.tiny_model import make_tiny_model

from .agent import prompt_of
from .tasks import sample_tasks
from .tools import TOOLS

__all__ = ["make_model"]

WARM_UP_STEPS = 60
WARM_UP_BATCH = 32
WARM_UP_LEARNING_RATE = 3e-3


def make_model(folder: Path, *, seed: int) -> Path:
    """Write the warmed-up model into ``folder`` and return it. Takes a few seconds of computing."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    make_tiny_model(folder, seed=seed)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    rng = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=WARM_UP_LEARNING_RATE, weight_decay=0.0)
    letters = [tokenizer.encode(letter)[0] for letter in TOOLS]
    tasks = sample_tasks(WARM_UP_STEPS * WARM_UP_BATCH, seed=seed + 1)
    for start in range(0, len(tasks), WARM_UP_BATCH):
        prompts = [
            tokenizer.apply_chat_template(prompt_of(task), add_generation_prompt=True, tokenize=True, return_dict=False)
            for task in tasks[start : start + WARM_UP_BATCH]
        ]
        longest = max(map(len, prompts))
        ids = torch.zeros(len(prompts), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            ids[row, longest - len(prompt) :] = torch.tensor(prompt)
            mask[row, longest - len(prompt) :] = 1
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        logits = model(input_ids=ids, attention_mask=mask, position_ids=positions, logits_to_keep=1).logits[:, -1]
        wanted = torch.tensor([rng.choice(letters) for _ in prompts])
        loss = torch.nn.functional.cross_entropy(logits, wanted)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimizer.step()
    model.save_pretrained(folder)
    return folder
