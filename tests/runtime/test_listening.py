"""What the URL of a socket is."""

from __future__ import annotations

import socket

import pytest

from lightstream.runtime import listening
from lightstream.runtime.listening import bind_listener, url_of

WAIT_S = 60.0


def connected_by(url: str) -> str:
    """Connect to the URL; returns its host."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    host = host.strip("[]")
    socket.create_connection((host, int(port)), WAIT_S).close()
    return host


@pytest.mark.parametrize("leads_elsewhere", [True, False])
def test_every_address_is_told_by_one_that_can_be_reached(
    monkeypatch: pytest.MonkeyPatch, leads_elsewhere: bool
) -> None:
    if not leads_elsewhere:
        monkeypatch.setattr(listening, "_ELSEWHERE", {socket.AF_INET: "no address"})
    with bind_listener("0.0.0.0", 0, "SETTING") as listener:
        host = connected_by(url_of(listener))
    assert host != "0.0.0.0"
    assert leads_elsewhere or host == "127.0.0.1"


def test_a_named_address_is_told_as_it_is() -> None:
    with bind_listener("127.0.0.1", 0, "SETTING") as listener:
        assert connected_by(url_of(listener)) == "127.0.0.1"
