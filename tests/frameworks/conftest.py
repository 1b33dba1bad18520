"""An arena with a scripted model, and one with the real policy server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lightstream.producers import uninstrument
from lightstream.runtime.settings import Settings
from tests.frameworks.harness import ROLLOUTS, Arena
from tests.frameworks.model_server import Meeting, ScriptedModel
from tests.frameworks.tapped_policy import TappedModel, policy_process


@pytest.fixture(scope="session")
def policy_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of a policy server that all tests share."""
    with policy_process(tmp_path_factory.mktemp("policy")) as policy:
        yield f"{policy.url}/v1"


@pytest.fixture
def script() -> ScriptedModel:
    """The model behind ``scripted``, whose script the test sets."""
    return ScriptedModel(meeting=Meeting(len(ROLLOUTS)))


@pytest.fixture
def scripted(settings: Settings, script: ScriptedModel) -> Iterator[Arena]:
    """A proxy before a model that answers by a script."""
    with Arena(settings, script) as arena:
        yield arena


@pytest.fixture
def real(settings: Settings, policy_url: str) -> Iterator[Arena]:
    """A proxy before the real policy server."""
    with Arena(settings, TappedModel(policy_url, Meeting(len(ROLLOUTS)))) as arena:
        yield arena


@pytest.fixture(autouse=True)
def nothing_stays_instrumented() -> Iterator[None]:
    yield
    uninstrument()
