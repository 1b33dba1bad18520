"""A gateway on the test's topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from lightstream.producers.otlp.gateway import gateway
from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import DeadLetter
from lightstream.schemas.topics import DEAD_LETTERS
from tests.producers.support import read_records

StartGateway = Callable[..., "Addresses"]

WAIT_S = 60.0
"""Time that a gateway gives its spans to become durable: its first ones wait for the connection too."""


@dataclass(frozen=True)
class Addresses:
    """Of a running gateway, as URLs without a path."""

    http: str
    grpc: str


@pytest.fixture
def start_gateway(settings: Settings) -> Iterator[StartGateway]:
    """Starts a gateway with settings of the test's choice."""
    with ExitStack() as stack:

        def start(base: Settings = settings, **changes: Any) -> Addresses:
            free = {"gateway_port": 0, "gateway_grpc_port": 0, "gateway_wait_s": WAIT_S}
            changed = base.model_copy(update=free | changes)
            server = gateway(changed)
            stack.callback(server.stop)
            return Addresses(server.start(), discover(changed, "gateway-grpc").address)

        yield start


@pytest.fixture
def addresses(start_gateway: StartGateway) -> Addresses:
    return start_gateway()


@pytest.fixture
def dead_letters(settings: Settings) -> Callable[[], list[DeadLetter]]:
    """All dead letters of this test's topics."""

    def read() -> list[DeadLetter]:
        return [record for _, record in read_records(settings, DEAD_LETTERS) if isinstance(record, DeadLetter)]

    return read
