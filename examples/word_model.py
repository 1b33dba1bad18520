"""A tiny model to which the words of a task are one token each: it reads and writes less than one of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightstream.trainers import make_tiny_model

__all__ = ["make_word_model"]

VOCABULARY_MULTIPLE = 8
"""Rows of the embedding are padded to a multiple of this, as kernels like it."""


def make_word_model(folder: Path, words: Sequence[str], *, seed: int) -> Path:
    """Write the tiny model of bytes with a token for each of these words beside them; returns the folder.

    The same arguments give the same weights.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    make_tiny_model(folder, seed=seed)
    load_model: Any = AutoModelForCausalLM.from_pretrained
    load_tokenizer: Any = AutoTokenizer.from_pretrained
    model, tokenizer = load_model(folder, dtype=torch.float32), load_tokenizer(folder)
    tokenizer.add_tokens(list(words))
    torch.manual_seed(seed)  # of the new words' embeddings
    model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=VOCABULARY_MULTIPLE, mean_resizing=False)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return folder
