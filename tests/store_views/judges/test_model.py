"""The judge's server fails in every way that passes, and in those that do not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.store_views.judges import JudgeModel, UnreadableVerdictError, model
from lightstream.store_views.judges.model import BudgetSpentError, StoppedError
from tests.producers.llm_proxy.upstreams import ScriptedUpstream, completion

QUESTION = [{"role": "user", "content": "how good?"}]
TOKENS = 30


@pytest.fixture
def server() -> ScriptedUpstream:
    upstream = ScriptedUpstream()
    upstream.answer = lambda _: completion(usage={"total_tokens": TOKENS})
    return upstream


@pytest.fixture
def url(server: ScriptedUpstream, tmp_path: Path) -> Iterator[str]:
    running = HttpServer(server.app, Settings.load(data_dir=tmp_path), name="judge", port=0, setting="")
    yield f"{running.start()}/v1"
    running.stop()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "PAUSE_S", 0.01)
    monkeypatch.setattr(model, "PAUSE_S_LIMIT", 0.02)


def judge(url: str, folder: Path, **options: Any) -> JudgeModel:
    return JudgeModel("m", url, "secret", folder / "answers.sqlite", **options)


def test_a_question_is_asked_until_it_is_answered_and_then_never_again(
    server: ScriptedUpstream, url: str, tmp_path: Path
) -> None:
    failures = iter([*(Response("later", status, headers={"retry-after": "0"}) for status in sorted(model.PASSING))])
    server.answer = lambda _: next(failures, None) or completion(usage={"total_tokens": TOKENS})
    asked = judge(url, tmp_path)
    assert (asked.ask(QUESTION, str), asked.questions, asked.tokens) == ("aa", 1, TOKENS)
    assert len(server.asked) == len(model.PASSING) + 1
    assert len({headers["idempotency-key"] for headers in server.headers}) == 1
    assert server.headers[0]["authorization"] == "Bearer secret"
    asked.close()
    again = judge(url, tmp_path)  # another process, later
    assert (again.ask(QUESTION, str), again.questions, again.tokens) == ("aa", 0, 0)
    assert len(server.asked) == len(model.PASSING) + 1
    again.ask(QUESTION, str, number=1)
    assert len(server.asked) == len(model.PASSING) + 2, "the same words once more"
    again.close()


@pytest.mark.parametrize(
    "answer",
    [Response('{"error": "no such key"}', 401), Response("x", 404), Response("<html>", 200), {"choices": []}, {}],
)
def test_what_does_not_pass_is_an_error_with_the_server_s_words(
    server: ScriptedUpstream, url: str, tmp_path: Path, answer: Any
) -> None:
    server.answer = lambda _: answer
    asked = judge(url, tmp_path)
    with pytest.raises(SettingsError, match="judge"):
        asked.ask(QUESTION, str)
    asked.close()


@pytest.mark.parametrize(("status", "times"), [(400, 1), (413, 1), (422, 1), (500, model.ERRORS_MAX)])
def test_one_question_that_the_server_refuses_or_fails_at_has_no_verdict(
    server: ScriptedUpstream, url: str, tmp_path: Path, status: int, times: int
) -> None:
    server.answer = lambda _: Response("too long", status)
    asked = judge(url, tmp_path)
    with pytest.raises(UnreadableVerdictError, match=f"{status}: too long"):
        asked.ask(QUESTION, str)
    assert len(server.asked) == times
    asked.close()


def test_an_answer_that_cannot_be_read_is_not_kept(server: ScriptedUpstream, url: str, tmp_path: Path) -> None:
    asked = judge(url, tmp_path)
    with pytest.raises(ValueError, match="aa"):
        asked.ask(QUESTION, float)
    server.answer = lambda _: completion(choices=[{"index": 0, "message": {"content": "0.5"}}])
    assert asked.ask(QUESTION, float) == asked.ask(QUESTION, float) == 0.5
    assert len(server.asked) == 2
    asked.close()


def test_a_spent_budget_ends_it(server: ScriptedUpstream, url: str, tmp_path: Path) -> None:
    asked = judge(url, tmp_path, tokens_max=TOKENS + 1)
    asked.ask(QUESTION, str)
    asked.ask([{"role": "user", "content": "and this?"}], str)
    with pytest.raises(BudgetSpentError, match="60 of 31 tokens"):
        asked.ask([{"role": "user", "content": "and that?"}], str)
    assert asked.ask(QUESTION, str) == "aa", "what is known costs nothing"
    assert len(server.asked) == 2
    asked.close()


def test_waiting_ends_with_the_process(server: ScriptedUpstream, url: str, tmp_path: Path) -> None:
    stopping = threading.Event()

    def fail(_: Any) -> Response:
        stopping.set()
        return Response("later", 503)

    server.answer = fail
    asked = judge(url, tmp_path, stopping=stopping)
    with pytest.raises(StoppedError):
        asked.ask(QUESTION, str)
    asked.close()


def test_a_rate_spreads_the_questions(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = judge(url, tmp_path, per_minute=30.0, now=lambda: 100.0)
    waits: list[float] = []
    monkeypatch.setattr(asked, "_wait", waits.append)
    for number in range(4):
        asked.ask(QUESTION, str, number=number)
    assert waits == [0.0, 2.0, 4.0, 6.0]
    asked.close()


def test_a_file_that_is_none_of_answers(url: str, tmp_path: Path) -> None:
    (tmp_path / "answers.sqlite").write_text("no database" * 1000)
    with pytest.raises(SettingsError, match="Move it away"):
        judge(url, tmp_path)
