"""A tiny model that knows the words of this game, and what it is taught before rewards teach it more."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, product
from pathlib import Path
from typing import Any

from examples.word_model import make_word_model
from lightstream.trainers import teach_answers

from .agent import ANIMALS, QUESTIONS, TURNS, answered, begin

__all__ = ["make_model", "teach_the_form"]

ANSWERS = [f"{question} {answer}" for question in QUESTIONS for answer in ("yes", "no")]
WORDS = [*QUESTIONS, *ANSWERS, *ANIMALS, "guess", "user\n", "assistant\n"]

WARM_UP_STEPS = 300
"""Some seconds in which the random model learns the form: any question, any other, and then any animal that the answers
leave possible. What is worth asking, rewards tell."""


def make_model(folder: Path, *, seed: int) -> Path:
    """The tiny model, to which each question, each answer and each animal is one token."""
    return make_word_model(folder, WORDS, seed=seed)


def teach_the_form(seed: int) -> Callable[[Any, Any], None]:
    """Any question while there is time for one, then any animal of which the same answers are true."""
    games, said = [], []
    for count in range(TURNS + 1):
        for questions, animal in product(product(QUESTIONS, repeat=count), ANIMALS):
            games.append([*begin(), *chain.from_iterable(answered(animal, question) for question in questions)])
            said.append(list(QUESTIONS) if count < TURNS else _left_by(questions, animal))
    return teach_answers(games, said, steps=WARM_UP_STEPS, end_turn=False, read_prompts=True, seed=seed)


def _left_by(questions: tuple[str, ...], animal: str) -> list[str]:
    """Animals of which these questions are answered as of this one."""
    answers = [question in ANIMALS[animal] for question in questions]
    return [other for other in ANIMALS if [question in ANIMALS[other] for question in questions] == answers]
