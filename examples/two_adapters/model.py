"""A tiny model to which words of the debate are one token each, and what it is taught before rewards teach it more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from examples.word_model import make_word_model
from lightstream.trainers import teach_answers

from .agent import TASKS, TOPICS, WORDS, prompt_of

__all__ = ["make_model", "teach_words"]

TOKENS = ["More ", "Say ", *TOPICS, *WORDS, "user\n", "assistant\n"]
WARM_UP_STEPS = 300
"""Some seconds in which the random model learns to say each word where it is told to, and to every question any of
them. An adapter steers what a model can say; it hardly teaches it words."""


def make_model(folder: Path, *, seed: int) -> Path:
    """The tiny model of bytes, with a token for each of :data:`TOKENS`."""
    return make_word_model(folder, TOKENS, seed=seed)


def teach_words(seed: int) -> Callable[[Any, Any], None]:
    """As the answer to each question any of the words, and to "Say yes." that one."""
    prompts = [*map(prompt_of, TASKS), *(f"Say {word}." for word in WORDS)]
    answers = [*([*WORDS] for _ in TASKS), *([word] for word in WORDS)]
    return teach_answers(prompts, answers, end_turn=False, steps=WARM_UP_STEPS, seed=seed)
