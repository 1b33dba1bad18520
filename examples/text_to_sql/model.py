"""A tiny model that knows the words of this task, and what it is taught before rewards teach it more."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

from examples.word_model import make_word_model
from lightstream.trainers import teach_answers

from .agent import REFUSED, asked, refused
from .database import AGGREGATES, COLUMNS, query_of, question_of

__all__ = ["make_model", "teach_the_form"]

TABLES = sorted(set(COLUMNS.values()))
BEGINNINGS = [query_of(aggregate, column, "") for aggregate, column in product(AGGREGATES.values(), COLUMNS)]
WORDS = [*BEGINNINGS, *TABLES, *(f"{word} " for word in AGGREGATES), *COLUMNS, "?", REFUSED, "user\n", "assistant\n"]

WARM_UP_STEPS = 200
"""Some seconds in which the random model learns to write SQL: the right query for a question, but on any table. Which
table has which column, rewards tell."""


def make_model(folder: Path, *, seed: int) -> Path:
    """The tiny model of bytes with a token for each of :data:`WORDS`: a query is two tokens, the second its table."""
    return make_word_model(folder, WORDS, seed=seed)


def teach_the_form(seed: int) -> Callable[[Any, Any], None]:
    """Any table, as the first answer and after a refusal."""
    prompts, answers = [], []
    for number, ((word, aggregate), column) in enumerate(product(AGGREGATES.items(), COLUMNS)):
        queries = [query_of(aggregate, column, table) for table in TABLES]
        conversation = asked(question_of(word, column))
        prompts += [conversation, [*conversation, *refused(queries[number % len(queries)])]]
        answers += [queries, queries]
    return teach_answers(prompts, answers, steps=WARM_UP_STEPS, end_turn=False, read_prompts=True, seed=seed)
