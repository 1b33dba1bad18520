"""The view's answers to a browser, whether or not the dashboard was built."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from lightstream.schemas.errors import NotFoundError
from lightstream.schemas.records.reasons import DROP_MEANINGS, NOTE_MEANINGS
from lightstream.store_views.server.dashboard import (
    CONTENT_SECURITY_POLICY,
    explanation_json,
    page_routes,
    reasons_answer,
)
from tests.store_views.log_file import LogFile
from tests.store_views.test_accounting import state
from tests.stream_processors.assembly.build import closed, opened, proxy_span, reward_span

BROWSER = {"accept": "text/html,application/xhtml+xml"}


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A built page in small."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<title>built</title>")
    (tmp_path / "assets" / "index-1a2b.js").write_text("export {}")
    return tmp_path


def browser(built: Path) -> TestClient:
    return TestClient(Starlette(routes=page_routes(built)), headers=BROWSER)


@pytest.mark.parametrize("address", ["/", "/run?run=a%2Fb", "/rollouts?status=failed", "/any/page/to/come"])
def test_every_address_of_the_page_is_the_page(built: Path, address: str) -> None:
    answer = browser(built).get(address)
    assert (answer.status_code, answer.text) == (200, "<title>built</title>")
    assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-cache"


def test_scripts_may_be_kept_for_ever_and_are_named_by_their_content(built: Path) -> None:
    answer = browser(built).get("/assets/index-1a2b.js")
    assert answer.headers["content-type"].startswith("text/javascript")
    assert "immutable" in answer.headers["cache-control"]
    assert browser(built).get("/assets/index-of-an-older-build.js").status_code == 404
    assert browser(built).get("/assets/..%2findex.html").status_code == 404


def test_programs_and_unknown_interfaces_are_told_404(built: Path) -> None:
    assert browser(built).get("/nowhere", headers={"accept": "*/*"}).status_code == 404
    assert browser(built).get("/v1/nowhere").status_code == 404
    assert browser(built).post("/").status_code == 405


def test_a_view_without_the_built_page_says_how_to_build_it(tmp_path: Path) -> None:
    http = browser(tmp_path / "missing")
    answer = http.get("/")
    assert answer.status_code == 200
    assert "make dashboard" in answer.text
    assert http.get("/assets/index.js").status_code == 404
    (tmp_path / "missing").mkdir()
    (tmp_path / "missing" / "index.html").write_text("built meanwhile")
    assert http.get("/").text == "built meanwhile"


def test_an_explanation_is_that_of_the_command_with_exact_times(log: LogFile) -> None:
    nanos = 1_795_652_911_067_720_079  # JSON numbers of a browser would round it
    log.write(state("r1"))
    call = proxy_span(1).model_copy(update={"start_unix_nano": nanos, "end_unix_nano": nanos + 5})
    log.write_and_assemble(opened(), call, proxy_span(2, http_status=500), reward_span(3, 0.5), closed())
    found = json.loads(explanation_json(log.database.cursor(), "r1"))
    assert found["conclusion"].startswith("its group is complete")
    fates = [(call["fate"], call["reason"], call["start_unix_nano"]) for call in found["calls"]]
    assert fates == [("dropped", "call_failed", 21), ("triplet", None, str(nanos))]
    assert [(segment["call_indexes"], segment["tokens"]) for segment in found["segments"]] == [([0], 5)]
    assert found["rebuilding"] is False
    with pytest.raises(NotFoundError, match="r2 not found"):
        explanation_json(log.database.cursor(), "r2")


def test_each_code_has_its_meaning() -> None:
    answer = json.loads(bytes(reasons_answer().body))
    assert answer == {"drops": dict(DROP_MEANINGS), "notes": dict(NOTE_MEANINGS)}
