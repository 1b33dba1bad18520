"""People's statements in a view process of their own (``LIGHTSTREAM_SQL_VIEW``)."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.processes import ProcessUnit, Supervisor
from lightstream.runtime.services import discover, find
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError, QueryError
from lightstream.schemas.topics import SPANS
from lightstream.store_views.client import ViewClient
from lightstream.up import Stack
from tests.store_views.view_process import running_view
from tests.stream_processors.assembly.build import proxy_span
from tests.support.certificates import Authority
from tests.support.waiting import eventually

SHAPES = (
    "SELECT levenshtein(s, reverse(s)) + {n} FROM (SELECT string_agg('ab', '') AS s FROM range(500000 + {n}))",
    "SELECT damerau_levenshtein(s, reverse(s)) + {n} FROM (SELECT string_agg('ab', '') AS s FROM range(50000 + {n}))",
    "SELECT jaro_winkler_similarity(s, reverse(s)) FROM (SELECT string_agg('ab', '') AS s FROM range(900000 + {n}))",
)
SLOW = "SELECT count(*) FROM range(100000000000) AS a(x) WHERE x % 7 = 3"
STATEMENTS, AT_ONCE = 60, 30


@pytest.fixture
def with_people(settings: Settings) -> Settings:
    return settings.model_copy(update={"sql_view": True})


@pytest.fixture
def view(with_people: Settings) -> Iterator[ProcessUnit]:
    """The view that training asks; people's is beside it."""
    supervisor = Supervisor()
    program = [sys.executable, "-m", "lightstream.cli", "view"]
    units = [
        ProcessUnit("view", program, with_people),
        ProcessUnit("view-sql", [*program, "--name", "sql"], with_people),
    ]
    try:
        supervisor.start(units)
        yield units[0]
    finally:
        supervisor.stop()
        for unit in units:
            print(unit.log_file.read_text("utf-8")[-3_000:])  # shown when the test fails


def test_sixty_hostile_statements_leave_the_view_of_training_alone(view: ProcessUnit, with_people: Settings) -> None:
    first, over = view.pid, threading.Event()

    def attack(number: int) -> str:
        with closing(ViewClient(with_people, patience_s=300)) as client:
            try:
                return str(client.query(SHAPES[number % len(SHAPES)].format(n=number), timeout_s=1).rows)
            except LightstreamError as error:
                return error.message

    def ask(lane: str) -> list[int]:
        counts: list[int] = []
        with closing(ViewClient(with_people, patience_s=0.1, lane=lane)) as client:
            while not over.wait(0.05):
                counts.append(client.query("SELECT count(*) FROM spans", "now").scalar())
        return counts

    with closing(KafkaPublisher(with_people)) as publisher, ThreadPoolExecutor(2 + AT_ONCE) as pool:
        asking = [pool.submit(ask, lane) for lane in ("stores", "dashboard")]
        attacks = [pool.submit(attack, number) for number in range(STATEMENTS)]
        written = [publisher.publish(SPANS, "r", proxy_span(number)).result(300) for number in range(200)]
        said = [attack.result() for attack in attacks]
        over.set()
        assert [asked.result()[-1] <= len(written) for asked in asking] == [True, True]
    assert view.pid == first
    assert any("has ended the view" in one for one in said)
    assert [one for one in said if "ended the view" not in one and "was stopped" not in one and one[:1] != "["] == []
    with closing(ViewClient(with_people, patience_s=300)) as client:
        assert client.query("SELECT count(*) FROM spans", written).scalar() == len(written)


def test_people_notice_no_difference(view: ProcessUnit, with_people: Settings) -> None:
    url = discover(with_people, "view").address
    with closing(KafkaPublisher(with_people)) as publisher, httpx.Client(base_url=url, timeout=60) as http:
        written = publisher.publish(SPANS, "r", proxy_span(1)).result(300)
        with closing(ViewClient(with_people)) as client:
            assert client.query("SELECT count(*) FROM spans WHERE 1 = $1", [written], params=[1]).scalar() == 1
            with pytest.raises(QueryError, match="nothing"):
                client.query("SELECT nothing FROM spans")
        csv = http.post("/v1/sql", json={"sql": "SELECT 1 AS one"}, headers={"accept": "text/csv"})
        assert csv.text.split() == ["one", "1"]
        assert csv.headers["x-lightstream-truncated"] == "false"
        own = find(with_people, "flight-sql")
        assert own is not None
        assert own.pid == discover(with_people, "view-sql").pid

        with ThreadPoolExecutor() as pool:
            asking = pool.submit(
                http.post, "/v1/sql", json={"sql": SLOW, "query_id": "mine", "timeout_s": 600}, timeout=600
            )
            eventually(lambda: _running(http) == ["mine"], what="the statement")
            assert http.delete("/v1/queries/mine").status_code == 200
            assert "was cancelled" in asking.result().json()["error"]["message"]
        assert http.delete("/v1/queries/mine").status_code == 404
        with pytest.raises(httpx.ReadTimeout):
            http.post("/v1/sql", json={"sql": SLOW, "timeout_s": 600}, timeout=httpx.Timeout(60, read=1))
        eventually(lambda: _running(http) == [], what="the end of a statement whose client has left")


def _running(http: httpx.Client) -> list[str]:
    return [each["query_id"] for each in http.get("/v1/queries").json()["queries"] if each["state"] == "running"]


@pytest.mark.parametrize("encrypted", [False, True])
def test_up_runs_both(with_people: Settings, tmp_path: Path, encrypted: bool) -> None:
    if encrypted:
        authority, file = Authority(tmp_path), tmp_path / "server.pem"
        authority.put(file)
        changes = {"tls_certificate_file": file, "tls_ca_file": authority.file}
        with_people = with_people.model_copy(update=changes)
    with Stack(with_people, services=("view",)) as stack:
        assert stack.names[-2:] == ["view", "view-sql"]
        with closing(ViewClient(stack.settings, patience_s=120)) as client:
            assert client.query("SELECT 1").scalar() == 1


def test_without_the_other_view_people_are_told_to_start_it(with_people: Settings) -> None:
    with running_view(with_people), httpx.Client(base_url=discover(with_people, "view").address, timeout=60) as http:
        answer = http.post("/v1/sql", json={"sql": "SELECT 1"})
        assert answer.status_code == 502
        assert "lightstream view --name sql" in answer.json()["error"]["next_step"]
        assert _running(http) == []
        own = http.post("/v1/sql", json={"sql": "SELECT 1 AS one"}, headers={"x-lightstream-lane": "stores"})
        assert own.json()["rows"] == [[1]]


def test_who_may_not_control_is_people_whatever_lane_they_name(with_people: Settings, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    scopes = {"person": ["read", "sql"], "trainer": ["sql", "control"]}
    file.write_text(
        "".join(
            f'[[token]]\nname = "{name}"\nsha256 = "{hashlib.sha256(name.encode()).hexdigest()}"\nscopes = {may}\n'
            for name, may in scopes.items()
        )
    )
    with (
        running_view(with_people.model_copy(update={"tokens_file": file})),
        httpx.Client(base_url=discover(with_people, "view").address, timeout=60) as http,
    ):
        statuses = {name: _status_as(http, name) for name in scopes}
    assert statuses == {"person": 502, "trainer": 200}


def _status_as(http: httpx.Client, token: str) -> int:
    headers = {"x-lightstream-lane": "stores", "authorization": f"Bearer {token}"}
    return http.post("/v1/sql", json={"sql": "SELECT 1"}, headers=headers).status_code
