"""What HTTP clients share: pauses between tries, and errors that name the server."""

from __future__ import annotations

import ssl

import pytest

from lightstream.runtime.http.client import Retries, send
from lightstream.runtime.ports import free_port
from lightstream.schemas.errors import ServiceUnavailableError


def test_pauses_double_up_to_a_second_until_the_patience_is_over() -> None:
    now_s = 100.0
    retries = Retries(10.0, lambda: now_s)
    bound_s, pauses = 0.05, 0
    while (pause_s := retries.pause_s()) is not None:
        assert bound_s / 2 <= pause_s <= bound_s
        bound_s = min(1.0, 2 * bound_s)
        now_s += pause_s
        pauses += 1
    assert retries.spent_s >= 10.0
    assert pauses >= 13  # 0.05 + 0.1 + 0.2 + 0.4 + 0.8, then a second each at most


def test_patience_begins_with_the_first_failure() -> None:
    now_s = 0.0
    retries = Retries(1.0, lambda: now_s)
    now_s = 60.0
    assert retries.pause_s() is not None


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}/models", "http://nowhere.invalid/", "no-scheme/x"])
def test_a_server_that_does_not_answer_is_named(url: str) -> None:
    certificates = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with pytest.raises(ServiceUnavailableError, match=r"the registry does not answer: .+") as told:
        send(
            "GET",
            url.format(port=free_port()),
            server="the registry",
            next_step="Start it.",
            timeout_s=5.0,
            certificates=certificates,
        )
    assert told.value.next_step == "Start it."
