"""Releases behind the proxy: each session on its arm, recorded on each call, and no call lost by a candidate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import httpx
import pytest

from lightstream.producers.llm_proxy.call import Caller
from lightstream.producers.llm_proxy.releases import key_of
from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.releases import ReleaseLog
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import StoreError
from lightstream.schemas.records import ReleaseChanged, ReleaseKey
from lightstream.schemas.releases import (
    Author,
    Release,
    offer,
    pause,
    point_of,
    promote,
    resume,
    roll_back,
    set_share,
    set_stable,
)
from lightstream.schemas.topics import RELEASES
from tests.producers.llm_proxy.conftest import StartProxy
from tests.producers.llm_proxy.upstreams import ScriptedUpstream, chunk, completion, streamed
from tests.producers.support import read_spans
from tests.support.waiting import eventually

WAIT_S = 300.0
STABLE, CANDIDATE = "run@1", "run@2"
SESSIONS = [f"session-{number}" for number in range(40)]
WHO = ("test", "because")


@pytest.fixture
def releases(settings: Settings) -> ReleaseLog:
    """A release without a candidate."""
    log = ReleaseLog(settings)
    log.change("agent", WHO, partial(set_stable, stable=STABLE))
    return log


def answer(request: Mapping[str, Any]) -> Any:
    """A whole answer of the model that was asked for."""
    return completion(model=request["model"])


class Agent:
    """Asks the proxy for the release."""

    def __init__(self, url: str) -> None:
        self._url = url

    def asks(self, session: str, **fields: Any) -> httpx.Response:
        body = {"model": "agent", "messages": [{"role": "user", "content": "hi"}], **fields}
        headers = {"x-lightstream-session": session}
        return httpx.post(f"{self._url}/v1/chat/completions", json=body, headers=headers, timeout=WAIT_S)

    def model_of(self, session: str) -> str:
        response = self.asks(session)
        assert response.status_code == 200, response.text
        return str(response.json()["model"])

    def models(self) -> list[str]:
        return [self.model_of(session) for session in SESSIONS]


def expected(share: float) -> list[str]:
    return [CANDIDATE if point_of("agent", session) < share else STABLE for session in SESSIONS]


def heard(agent: Agent, is_so: Callable[[Agent], bool]) -> None:
    """The proxy has read a change."""
    eventually(partial(is_so, agent))


def probe(session: str, model: str) -> Callable[[Agent], bool]:
    return lambda agent: agent.model_of(session) == model


def test_sessions_keep_their_arm_until_it_is_decided(
    releases: ReleaseLog, start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    upstream.answer = answer
    agent = Agent(start_proxy())
    assert agent.models() == [STABLE] * len(SESSIONS)
    everyone = next(name for name in map(str, range(10_000)) if point_of("agent", name) < 0.01)

    releases.change("agent", WHO, partial(offer, candidate=CANDIDATE, share=0.3))
    heard(agent, probe(everyone, CANDIDATE))
    assert agent.models() == expected(0.3)
    assert set(expected(0.3)) == {STABLE, CANDIDATE}

    releases.change("agent", WHO, partial(set_share, share=1.0))
    fresh = (str(number) for number in range(10_000) if point_of("agent", str(number)) > 0.3)
    heard(agent, lambda agent: agent.model_of(next(fresh)) == CANDIDATE)  # each is asked for the first time
    assert agent.models() == expected(0.3), "known sessions stay"

    releases.change("agent", WHO, pause)
    heard(agent, probe(everyone, STABLE))
    assert agent.models() == [STABLE] * len(SESSIONS)
    releases.change("agent", WHO, resume)
    heard(agent, probe(everyone, CANDIDATE))
    assert agent.models() == [CANDIDATE] * len(SESSIONS), "a pause moves them, then they go by the share"

    releases.change("agent", WHO, roll_back)
    heard(agent, probe(everyone, STABLE))
    assert agent.models() == [STABLE] * len(SESSIONS)
    releases.change("agent", WHO, partial(offer, candidate=CANDIDATE, share=0.3))
    heard(agent, probe(everyone, CANDIDATE))
    releases.change("agent", WHO, promote)
    rest = next(session for session in SESSIONS if point_of("agent", session) > 0.3)
    heard(agent, probe(rest, CANDIDATE))
    assert agent.models() == [CANDIDATE] * len(SESSIONS)


def test_each_call_says_its_arm(
    releases: ReleaseLog, settings: Settings, start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    upstream.answer = answer
    releases.change("agent", WHO, partial(offer, candidate=CANDIDATE, share=0.3))
    agent = Agent(start_proxy(llm_model="another"))
    models = agent.models()
    assert models == expected(0.3), "a proxy that starts knows them at its first call, whatever LLM_MODEL says"
    spans = read_spans(settings)
    assert len(spans) == len(SESSIONS)
    said = {span.attributes["lightstream.release.key"]: span for span in spans}
    for session, model in zip(SESSIONS, models, strict=True):
        span = said[session]
        attributes = {name.removeprefix("lightstream.release."): value for name, value in span.attributes.items()}
        assert attributes["arm"] == ("candidate" if model == CANDIDATE else "stable")
        assert [attributes[name] for name in ("name", "model", "stable", "candidate", "revision", "key_from")] == [
            "agent", model, STABLE, CANDIDATE, 2, "header",
        ]  # fmt: skip
        assert span.llm_call is not None
        assert (span.llm_call.requested_model, span.llm_call.response_model) == ("agent", model)


def lost(request: Mapping[str, Any]) -> Any:
    """The candidate's server has lost it."""
    from starlette.responses import Response

    if request["model"] == CANDIDATE:
        return Response("no such model", 404)
    if request.get("stream"):
        return streamed(chunk(7, first=True), chunk(8, finish_reason="stop"))
    return answer(request)


def broken(request: Mapping[str, Any]) -> Any:
    return {"error": {"message": "out of memory", "code": 500}} if request["model"] == CANDIDATE else answer(request)


@pytest.mark.parametrize(("script", "streams"), [(lost, False), (lost, True), (broken, False)])
def test_a_candidate_that_fails_loses_no_call(
    releases: ReleaseLog,
    settings: Settings,
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    script: Callable[[Mapping[str, Any]], Any],
    streams: bool,
) -> None:
    upstream.answer = script
    releases.change("agent", WHO, partial(offer, candidate=CANDIDATE, share=1.0))
    response = Agent(start_proxy()).asks("s", stream=streams)
    assert response.status_code == 200
    assert "aa" in response.text or "<7>" in response.text
    assert [asked["model"] for asked in upstream.asked] == [CANDIDATE, STABLE]
    (span,) = read_spans(settings)
    attributes = span.attributes
    assert (attributes["lightstream.release.arm"], attributes["lightstream.release.model"]) == ("candidate", STABLE)
    assert attributes["lightstream.release.fallback"].startswith("500" if script is broken else "404: no such model")
    assert span.llm_call is not None
    assert span.llm_call.http_status == 200
    assert span.llm_call.error_message is None
    assert f'"model":"{STABLE}"' in (span.llm_call.request_json or "")


def test_a_request_that_is_wrong_is_not_sent_twice(
    releases: ReleaseLog, start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    from starlette.responses import Response

    upstream.answer = lambda _request: Response('{"error": {"message": "too long"}}', 400)
    releases.change("agent", WHO, partial(offer, candidate=CANDIDATE, share=1.0))
    assert Agent(start_proxy()).asks("s").status_code == 400
    assert {asked["model"] for asked in upstream.asked} == {CANDIDATE}


def test_models_that_are_no_release_are_as_before(
    releases: ReleaseLog, settings: Settings, start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    upstream.answer = answer
    url = start_proxy()
    assert Agent(url).asks("s", model="m").json()["model"] == "m"
    (span,) = read_spans(settings)
    assert not [name for name in span.attributes if name.startswith("lightstream.release")]
    described = httpx.get(f"{url}/v1/models/agent", timeout=WAIT_S).json()
    assert (described["id"], described["owned_by"]) == ("agent", "lightstream-release")


def test_a_change_that_lost_a_race_changes_nothing(releases: ReleaseLog, settings: Settings) -> None:
    """The first of two records with one revision counts; the writer of the other is told."""
    raced: list[ReleaseChanged] = []

    def late(release: Release, author: Author) -> ReleaseChanged:
        first = offer(release, author, CANDIDATE, 0.5)
        publisher = KafkaPublisher(settings)
        publisher.publish(RELEASES, "agent", first).result(WAIT_S)
        publisher.close()
        raced.append(first)
        return offer(release, author, "run@3", 0.5)

    with pytest.raises(StoreError, match="another change of release 'agent' came first: offered by test"):
        releases.change("agent", WHO, late)
    assert releases.states()["agent"] == raced[0]
    assert [change.revision for change in releases.history("agent")] == [1, 2]


CALLER = Caller("rollout", "attempt", "trace")


@pytest.mark.parametrize(
    ("key", "fields", "headers", "found"),
    [
        ("session", {}, {"x-lightstream-session": "s", "baggage": "session.id=b"}, ("s", "header")),
        ("session", {"metadata": {"user_id": "u"}}, {"baggage": "a=1, session.id=b%20c;p"}, ("b c", "baggage")),
        ("session", {"metadata": {"session_id": "m", "user_id": "u"}, "user": "x"}, {}, ("m", "metadata")),
        ("session", {"metadata": {"user_id": "user_1_session_2"}}, {}, ("user_1_session_2", "metadata")),
        ("session", {"user": "x"}, {}, ("x", "user")),
        ("session", {"user": " ", "metadata": "no object"}, {"baggage": "%%%;;,="}, ("rollout", "rollout")),
        ("user", {"user": "x"}, {"x-lightstream-session": "s"}, ("x", "user")),
        ("user", {"user": "x"}, {"baggage": "user.id=b"}, ("b", "baggage")),
        ("rollout", {"user": "x"}, {"x-lightstream-session": "s"}, ("rollout", "rollout")),
    ],
)
def test_a_key_is_found(key: str, fields: Any, headers: Mapping[str, str], found: tuple[str, str]) -> None:
    assert key_of(ReleaseKey(key), fields, CALLER, headers) == found


def test_a_call_without_any_name_goes_by_its_trace() -> None:
    assert key_of(ReleaseKey.SESSION, {}, Caller(None, None, "trace"), {}) == ("trace", "trace")
