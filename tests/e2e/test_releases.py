"""A candidate that breaks is rolled back by its rule: no call is lost, sessions stay whole, whatever is killed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import httpx
import pytest
from starlette.responses import Response

from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.services import find
from lightstream.runtime.settings import Settings
from lightstream.store_views.client import ViewClient
from lightstream.up import Stack
from tests.producers.llm_proxy.upstreams import ScriptedUpstream, completion
from tests.support.runs_command import lightstream
from tests.support.waiting import eventually

WAIT_S = 900.0
STABLE, CANDIDATE = "run@1", "run@2"
ERRORS = (
    "errors=SELECT count(*) AS errors FROM release_calls WHERE release = $release AND release_fallback IS NOT NULL "
    "AND release_arm = 'candidate' AND start_unix_nano >= $since HAVING count(*) >= 5"
)
BROKEN = "broken=SELECT no_such_column FROM release_calls"


class ModelServer:
    """Serves both models, until the candidate breaks."""

    def __init__(self) -> None:
        self.server = ScriptedUpstream()
        self.server.answer = self._answer
        self.is_broken = threading.Event()

    def _answer(self, request: Mapping[str, Any]) -> Any:
        if request["model"] == CANDIDATE and self.is_broken.is_set():
            return Response("out of memory", 500)
        return completion(model=request["model"])


class Users:
    """Sessions that ask one call after the other, each again where its connection broke."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(f"session-{number}",)) for number in range(6)]
        self.answered = 0
        self.failed: list[str] = []
        self._lock = threading.Lock()

    def have_more_than(self, answers: int) -> bool:
        return self.answered > answers

    def __enter__(self) -> Users:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, session: str) -> None:
        body = {"model": "agent", "messages": [{"role": "user", "content": "hi"}]}
        with httpx.Client(timeout=WAIT_S, headers={"x-lightstream-session": session}) as client:
            while not self._stop.is_set():
                try:
                    response = client.post(f"{self._url}/v1/chat/completions", json=body)
                except httpx.TransportError:
                    self._stop.wait(0.1)  # the proxy was killed: its client tries again
                    continue
                with self._lock:
                    if response.status_code == 200:
                        self.answered += 1
                    else:
                        self.failed.append(response.text)
                self._stop.wait(0.02)


@pytest.fixture
def models(settings: Settings) -> Iterator[tuple[ModelServer, str]]:
    found = ModelServer()
    running = HttpServer(found.server.app, settings, name="models", port=0, setting="", announced=False)
    yield found, f"{running.start()}/v1"
    running.stop()


def listed(settings: Settings) -> dict[str, Any]:
    (state,) = json.loads(lightstream(settings, "release", "list", "--format", "json"))
    return dict(state)


def history(settings: Settings) -> list[tuple[str, str]]:
    changes = json.loads(lightstream(settings, "release", "history", "agent", "--format", "json"))
    return [(change["action"], change["by"]) for change in changes]


def rule_fails(settings: Settings, view: str) -> bool:
    """The view's metrics tell that the broken rule fails."""
    service = find(settings, view)
    if service is None:
        return False
    try:
        told = httpx.get(f"{service.address}/metrics", timeout=WAIT_S).text
    except httpx.TransportError:
        return False
    return 'lightstream_release_rule_failing{release="agent",rule="broken"} 1.0' in told


def changed_by_http(settings: Settings) -> None:
    """The routes of the page: a change of a state that is no more, and one that cannot be, change nothing."""
    view = find(settings, "view")
    assert view is not None
    with httpx.Client(base_url=f"{view.address}/v1", timeout=WAIT_S) as http:
        (state,) = http.get("/releases").json()["releases"]
        assert state == listed(settings)
        for body, message in (
            ({"action": "pause", "revision": state["revision"] - 1}, "has changed meanwhile"),
            ({"action": "promote"}, "has no candidate"),
            ({"action": "explode"}, "action must be one of"),
            ({"action": "share"}, "share must be a number"),
            ({"action": "pause", "more": 1}, "is no field of a change"),
        ):
            refused = http.post("/releases/agent", json=body)
            assert refused.status_code == 400, refused.text
            assert message in refused.json()["error"]["message"]
        assert http.post("/releases/agent", content=b"no").status_code == 400
        assert listed(settings) == state
        paused = http.post("/releases/agent", json={"action": "pause", "revision": state["revision"], "by": "ada"})
        assert paused.json()["by"] == "page, ada"
        assert http.post("/releases/agent", json={"action": "resume"}).json()["paused"] is False


def is_served_by_stable(asked: Sequence[Mapping[str, Any]]) -> bool:
    """The last of these requests, twenty at least, are for the stable model."""
    return len(asked) >= 20 and {request["model"] for request in asked[-20:]} == {STABLE}


def test_a_breach_rolls_back(settings: Settings, models: tuple[ModelServer, str]) -> None:
    model, url = models
    with Stack(settings.model_copy(update={"llm_upstream_url": url}), services=("view", "proxy")) as stack:
        settings = stack.settings
        asks_rules = "view-sql" if settings.sql_view else "view"
        proxy = find(settings, "proxy")
        assert proxy is not None
        view = ViewClient(settings, patience_s=WAIT_S)
        lightstream(settings, "release", "set", "agent", "--stable", STABLE, "--rule", BROKEN, "--rule", ERRORS)
        lightstream(settings, "release", "offer", "agent", CANDIDATE, "--share", "0.5", "--reason", "it learned")
        with Users(proxy.address) as users:
            eventually(lambda: rule_fails(settings, asks_rules), timeout_s=WAIT_S)
            for killed in ("proxy", asks_rules):
                known = users.answered
                stack.kill(killed)
                stack.wait_ready(killed, WAIT_S)
                eventually(partial(users.have_more_than, known + 20), timeout_s=WAIT_S)
            assert listed(settings)["candidate"] == CANDIDATE, "a rule that fails rolls nothing back"
            model.is_broken.set()
            stack.kill(asks_rules)
            stack.kill("proxy")
            eventually(lambda: listed(settings)["candidate"] is None, timeout_s=WAIT_S)
            asked = len(model.server.asked)
            eventually(lambda: is_served_by_stable(model.server.asked[asked:]), timeout_s=WAIT_S)
        assert users.failed == []
        rolled_back = [by for action, by in history(settings) if action == "rolled_back"]
        assert rolled_back == ["rule errors"]
        state = listed(settings)
        assert (state["stable"], state["share"]) == (STABLE, 0.0)
        assert state["reason"].startswith("errors = ")
        (calls, failed) = view.query(
            "SELECT count(DISTINCT span_id), count(*) FILTER (error_message IS NOT NULL) FROM release_calls", "now"
        ).rows[0]
        assert calls >= users.answered, "each answer is in the log"
        assert failed == 0
        arms = view.query(
            "SELECT release_key, count(DISTINCT release_arm), min(release_arm) FROM spans "
            "WHERE attributes ->> '$.\"lightstream.release.revision\"' = '2' GROUP BY ALL ORDER BY ALL"
        ).rows
        assert {count for _, count, _ in arms} == {1}, "each session was on one arm"
        assert {arm for _, _, arm in arms} == {"candidate", "stable"}

        changed_by_http(settings)
        lightstream(settings, "release", "offer", "agent", "run@3")
        lightstream(settings, "promote", "agent", "--reason", "better")
        lightstream(settings, "pause", "agent")
        lightstream(settings, "rollback", "agent", "--to-previous")
        assert [action for action, _ in history(settings)][-4:] == ["offered", "promoted", "paused", "rolled_back"]
        assert (listed(settings)["stable"], listed(settings)["paused"]) == (STABLE, True)
