"""The contract's tests run on every store. Coroutine tests run in a loop of their own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator

import pytest

from lightstream.schemas.interfaces import LightningStore
from lightstream.store_views.stores import InMemoryLightningStore

from .support import cancel_what_is_left

BACK_ENDS = ["memory"]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test; everything else is pytest's own business."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(params=BACK_ENDS)
def store(request: pytest.FixtureRequest) -> Iterator[LightningStore]:
    """A started store. On Kafka it is shared by a session, so tests look at what is theirs."""
    if request.param == "kafka":
        shared: LightningStore = request.getfixturevalue("kafka_store")
        yield shared
        asyncio.run(cancel_what_is_left(shared))
        return
    made = InMemoryLightningStore()
    asyncio.run(made.start())
    yield made
    asyncio.run(made.close())
