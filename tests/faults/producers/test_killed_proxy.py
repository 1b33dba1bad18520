"""The proxy is killed under load, before clients that try again: of what they were answered all is there, once."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from lightstream.runtime.ports import free_port
from lightstream.runtime.processes import ProcessUnit, Supervisor
from lightstream.runtime.settings import Settings
from tests.faults.producers.model_server import Agents, counting_model_server
from tests.producers.support import read_spans

COMMAND = [sys.executable, "-m", "lightstream.cli", "proxy"]
AGENTS = 6
RETRIES_MAX = 20


@pytest.fixture
def proxied(settings: Settings) -> Iterator[tuple[Supervisor, str]]:
    """A proxy that is kept running at one address, and its URL."""
    port = free_port()
    supervisor = Supervisor()
    with counting_model_server(settings) as upstream:
        fixed = settings.model_copy(update={"llm_upstream_url": upstream, "proxy_port": port})
        supervisor.start([ProcessUnit("proxy", COMMAND, fixed)])
        yield supervisor, f"http://127.0.0.1:{port}"
        supervisor.stop()


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.soak)])
def test_what_was_answered_survives_kills_under_load(
    proxied: tuple[Supervisor, str], settings: Settings, kills: int
) -> None:
    supervisor, url = proxied
    with Agents(url, AGENTS, max_retries=RETRIES_MAX) as agents:
        for _ in range(kills):
            agents.wait_for(lambda: agents.answered, "all agents are answered")
            supervisor.kill("proxy")
            supervisor.wait_ready("proxy")
        agents.wait_for(lambda: agents.answered, "all agents are answered again")
    spans = read_spans(settings)
    recorded = [span.llm_call.response_id for span in spans if span.llm_call is not None]
    answered = [response_id for mine in agents.answered for response_id in mine]
    assert len(recorded) == len(set(recorded)) == len({(span.trace_id, span.span_id) for span in spans})
    assert set(answered) <= set(recorded)
    assert len(answered) == len(set(answered))
    broken_off = [reason for mine in agents.refused for reason in mine]
    assert len(broken_off) <= kills * AGENTS, "only a stream that had begun is the agent's to repeat"
