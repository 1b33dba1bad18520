"""Health of a process, as whoever keeps it running asks for it."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from lightstream.broker import EmbeddedBroker
from lightstream.runtime.health import WithHealth
from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.kafka import KafkaContact, contact
from lightstream.runtime.settings import Settings
from lightstream.schemas.topics import SPANS
from tests.support.waiting import eventually


async def own(request: Request) -> Response:
    return PlainTextResponse("the application's own")


def test_without_checks_a_server_that_answers_is_alive_and_ready() -> None:
    with TestClient(WithHealth(Starlette(), name="test")) as http:
        for path in ("/healthz", "/readyz"):
            answer = http.get(path)
            assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
        assert http.post("/readyz").status_code == 404, "it is asked with GET"
        assert http.get("/elsewhere").status_code == 404


def test_every_reason_is_told() -> None:
    reasons: list[str | None] = ["Kafka is away", None, "it lags"]
    checks = [lambda reason=reason: reason for reason in reasons]
    with TestClient(WithHealth(Starlette(), name="test", alive=lambda: "it stands still", ready=checks)) as http:
        answer = http.get("/readyz")
        assert (answer.status_code, answer.json()["reasons"]) == (503, ["Kafka is away", "it lags"])
        answer = http.get("/healthz")
        assert (answer.status_code, answer.json()["reasons"]) == (503, ["it stands still"])


def test_a_path_of_the_application_stays_its_own() -> None:
    app = Starlette(routes=[Route("/healthz", own)])
    with TestClient(WithHealth(app, name="test", alive=lambda: "never asked")) as http:
        assert http.get("/healthz").text == "the application's own"
        assert http.get("/readyz").status_code == 200


def test_every_server_of_ours_tells_its_health(tmp_path: Path) -> None:
    server = HttpServer(Starlette(), Settings.load(data_dir=tmp_path), name="test", ready=[lambda: "not yet"])
    url = server.start()
    try:
        assert httpx.get(f"{url}/healthz", timeout=60).status_code == 200
        assert httpx.get(f"{url}/readyz", timeout=60).json() == {"status": "unready", "reasons": ["not yet"]}
    finally:
        server.stop()


def test_a_broker_that_is_away_makes_a_process_unready_until_it_is_back(
    private_broker: EmbeddedBroker, private_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contact, "ASK_INTERVAL_S", 0.0)
    monkeypatch.setattr(contact, "SILENCE_S_MAX", 0.0)
    check = KafkaContact(private_settings)
    assert eventually(lambda: check() is None, what="Kafka's answer")
    private_broker.kill()
    reason = check()
    assert reason is not None
    assert reason.startswith("Kafka has not answered for ")
    private_broker.start()
    assert eventually(lambda: check() is None, what="Kafka's answer")


def test_a_client_that_is_kept_tells_ends_after_the_broker_has_started_again(
    private_broker: EmbeddedBroker, private_settings: Settings
) -> None:
    """It remembers leaders by an epoch, which each start of the broker raises."""
    kept = KafkaContact(private_settings)
    place = (SPANS.full_name(private_settings.topic_prefix), 0)
    assert kept.end_offsets([place]) == {place: 0}
    for stop in (private_broker.stop, private_broker.kill):
        stop()
        private_broker.start()
        assert kept.end_offsets([place]) == {place: 0}


def test_requests_are_counted_by_status_and_further_metrics_are_told() -> None:
    def readings() -> list[Metric]:
        depth = GaugeMetricFamily("test_depth", "How deep.")
        depth.add_metric([], 7)
        return [depth]

    app = WithHealth(Starlette(routes=[Route("/own", own)]), name="a-server-of-this-test", metrics=[readings])
    with TestClient(app) as http:
        http.get("/own")
        http.get("/own")
        http.get("/elsewhere/r-1")
        text = http.get("/metrics").text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    told = [sample for sample in samples if sample.labels.get("server") == "a-server-of-this-test"]
    requests = {sample.labels["status"]: sample.value for sample in told if sample.name.endswith("_requests_total")}
    assert requests == {"200": 2.0, "404": 1.0}, text
    assert [sample.value for sample in told if sample.name == "lightstream_http_request_seconds_count"] == [3.0]
    assert "test_depth 7.0" in text
    assert [sample.value for sample in told if sample.name == "lightstream_ready"] == [1.0]
    assert "r-1" not in text


def test_a_short_silence_is_no_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [True, False]
    monkeypatch.setattr(contact, "ASK_INTERVAL_S", 0.0)
    monkeypatch.setattr(KafkaContact, "answers", lambda *_: answers.pop(0))
    check = KafkaContact(Settings.load(data_dir=tmp_path))
    assert (check(), check()) == (None, None)


def test_a_kafka_that_never_answered_is_a_reason_at_once(tmp_path: Path) -> None:
    assert KafkaContact(Settings.load(data_dir=tmp_path))() == "Kafka has not answered yet"
