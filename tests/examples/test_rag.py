"""The documents of the example that searches: what a query finds."""

from __future__ import annotations

import pytest

from examples.rag.documents import DOCUMENTS, TOPIC_OF, days_in, search


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_a_document_is_called_finds_it(document: str) -> None:
    topic, _, _ = document.partition(":")
    assert search(topic) == document
    assert document == f"{topic}: within {days_in(document)} days"


def test_customers_put_it_in_other_words() -> None:
    found = {question: search(question) for question in TOPIC_OF}
    assert any(not document.startswith(TOPIC_OF[question]) for question, document in found.items())


@pytest.mark.parametrize("query", ["", "é", "\n"])
def test_a_query_without_words_is_as_near_to_each_and_finds_the_first(query: str) -> None:
    assert search(query) == DOCUMENTS[0]
