"""A tiny model that knows the words of these documents, and what it is taught before rewards teach it more."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

from examples.word_model import make_word_model
from lightstream.trainers import teach_answers

from .agent import asked, found
from .documents import TOPIC_OF, days_in, search

__all__ = ["make_model", "teach_the_form"]

TOPICS = sorted(set(TOPIC_OF.values()))
WORDS = [*TOPIC_OF, *TOPICS, ": within ", " days", "user\n", "assistant\n"]

WARM_UP_STEPS = 120
"""Some seconds in which the random model learns the form: a query for any topic, then the number that it has read.
What the documents call what a customer means, rewards tell."""


def make_model(folder: Path, *, seed: int) -> Path:
    """The tiny model, to which each question and each topic is one token."""
    return make_word_model(folder, WORDS, seed=seed)


def teach_the_form(seed: int) -> Callable[[Any, Any], None]:
    """Any topic as the query; the document's number as the answer."""
    read = [
        ([*asked(question), *found(topic)], [days_in(search(topic))]) for question, topic in product(TOPIC_OF, TOPICS)
    ]
    queries = [(asked(question), TOPICS) for question in TOPIC_OF]
    prompts, answers = zip(*read, *queries * len(TOPICS), strict=True)
    return teach_answers(
        list(prompts), list(answers), steps=WARM_UP_STEPS, end_turn=False, read_prompts=True, seed=seed
    )
