"""The documents, the index over them, and questions that are put in other words than the documents are."""

from __future__ import annotations

from functools import cache

import faiss
import numpy as np
import numpy.typing as npt

__all__ = ["DOCUMENTS", "TOPIC_OF", "days_in", "search"]

DOCUMENTS = (
    "refund: within 5 days",
    "delivery: within 4 days",
    "repair: within 9 days",
    "cancel: within 2 days",
)
TOPIC_OF = {
    "money back?": "refund",
    "paid twice?": "refund",
    "no parcel?": "delivery",
    "still waiting?": "delivery",
    "broken?": "repair",
    "no sound?": "repair",
    "leaving?": "cancel",
    "too dear?": "cancel",
}
"""How customers ask -> what the documents call it."""

DIMENSIONS = 256
"""Of an embedding: counts of hashed trigrams. Any model of sentences does better, and is slower."""


def search(query: str) -> str:
    """The document that is nearest to a query."""
    _, nearest = _index().search(_embed([query]), 1)
    return DOCUMENTS[int(nearest[0, 0])]


def days_in(document: str) -> str:
    """The number that a document says."""
    return next(character for character in document if character.isdigit())


@cache
def _index() -> faiss.IndexFlatIP:
    index = faiss.IndexFlatIP(DIMENSIONS)
    index.add(_embed(DOCUMENTS))
    return index


def _embed(texts: tuple[str, ...] | list[str]) -> npt.NDArray[np.float32]:
    vectors = np.zeros((len(texts), DIMENSIONS), np.float32)
    for vector, text in zip(vectors, texts, strict=True):
        for start in range(len(text) - 2):
            vector[sum(place * ord(c) for place, c in zip((1, 31, 961), text[start:], strict=False)) % DIMENSIONS] += 1
    faiss.normalize_L2(vectors)
    return vectors
