"""A proxy on the test's topics, before an upstream whose behaviour the test writes down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import openai
import pytest

from lightstream.producers.llm_proxy import llm_proxy
from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.settings import Settings
from tests.producers.llm_proxy.upstreams import ScriptedUpstream

StartProxy: TypeAlias = Callable[..., str]


@pytest.fixture
def upstream() -> ScriptedUpstream:
    return ScriptedUpstream()


@pytest.fixture
def upstream_url(upstream: ScriptedUpstream, settings: Settings) -> Iterator[str]:
    """The running upstream's base URL."""
    server = HttpServer(upstream.app, settings, name="upstream", port=0, setting="")
    yield f"{server.start()}/v1"
    server.stop()


@pytest.fixture
def start_proxy(settings: Settings, upstream_url: str) -> Iterator[StartProxy]:
    """Starts a proxy with settings of the test's choice; gives its URL."""
    with ExitStack() as stack:

        def start(**changes: Any) -> str:
            server = llm_proxy(settings.model_copy(update={"llm_upstream_url": upstream_url} | changes))
            stack.callback(server.stop)
            return server.start()

        yield start


@pytest.fixture
def proxy_url(start_proxy: StartProxy) -> str:
    return start_proxy()


@pytest.fixture
def client(proxy_url: str) -> openai.OpenAI:
    """An OpenAI client as an agent has it, in attempt ``a`` of rollout ``r``."""
    return openai.OpenAI(base_url=f"{proxy_url}/rollout/r/attempt/a/v1", api_key="none", max_retries=0)


@pytest.fixture
def policy(settings: Settings, tmp_path: Path) -> Iterator[str]:
    """A real policy server that is announced beside the proxy; its URL."""
    from lightstream.trainers.run.model.tiny_model import make_tiny_model
    from lightstream.trainers.servers.cpu import policy_server

    model = make_tiny_model(tmp_path / "model")
    server = policy_server(settings, checkpoint=model, follows_resources=False)
    yield server.start()
    server.stop()
