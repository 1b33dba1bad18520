"""From an attempt that fits in no record to rows of the view, by address."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from lightstream.runtime.kafka import KafkaPublisher, create_topics
from lightstream.runtime.large_records import whole_trajectory
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.records import Trajectory
from lightstream.schemas.topics import SPANS, TRAJECTORIES
from lightstream.store_views.materialiser import Materialiser
from tests.stream_processors.assembly.build import closed, opened, proxy_span
from tests.stream_processors.worker.harness import TopicReader, WorkerProcess
from tests.support.topics import delete_topics

WAIT_S = 300.0
TOKENS = 60_000
"""480 KB a call with log-probabilities and mask, of 1 MiB that a record takes."""


@pytest.fixture
def small(kafka_servers: str, kafka_admin: AdminClient, tmp_path: Path) -> Iterator[Settings]:
    settings = Settings.load(
        kafka_bootstrap_servers=kafka_servers,
        topic_prefix=f"t{uuid.uuid4().hex[:12]}.",
        topic_partitions=1,
        data_dir=tmp_path,
        record_bytes_max=1024 * 1024,
        large_records_dir=tmp_path / "large",
    )
    create_topics(settings)
    yield settings
    delete_topics(kafka_admin, settings.topic_prefix)


@pytest.fixture
def publisher(small: Settings) -> Iterator[KafkaPublisher]:
    with closing(KafkaPublisher(small)) as publisher:
        yield publisher


@contextmanager
def dripping_server(asked: list[str]) -> Generator[str]:
    """One that notes what it is asked for and never ends an answer; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            while True:
                self.wfile.write(b"x")
                threading.Event().wait(1)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def rows(view: Materialiser, sql: str) -> list[tuple[object, ...]]:
    return view.database.cursor().execute(sql).fetchall()


def test_a_trajectory_larger_than_a_record_is_whole_in_the_view(small: Settings, publisher: KafkaPublisher) -> None:
    spans = [proxy_span(n, [n] * TOKENS, [n] * TOKENS) for n in range(1, 5)]
    with WorkerProcess(small):
        for record in [opened(), *spans, closed()]:
            publisher.publish(SPANS, "r1", record).result(WAIT_S)
        (head,) = TopicReader(small, TRAJECTORIES).wait_for(1)
    assert isinstance(head, Trajectory)
    assert (head.triplets, head.call_count) == ([], 4)
    assert head.payload_size_bytes > small.record_bytes_max
    whole = whole_trajectory(head, Codec(), small)
    assert [len(t.response_token_ids) for t in whole.triplets] == [4 * TOKENS] * 4

    gone = head.model_copy(update={"rollout_id": "gone", "payload_url": (small.data_dir / "gone").as_uri()})
    publisher.publish(TRAJECTORIES, "gone", gone).result(WAIT_S)
    asked: list[str] = []
    with dripping_server(asked) as address:
        for url in (f"{address}/latest/meta-data", "http://169.254.169.254/latest/meta-data", "file:///etc/hostname"):
            foreign = gone.model_copy(update={"rollout_id": url, "payload_url": url})
            publisher.publish(TRAJECTORIES, url, foreign).result(WAIT_S)
        whole_afterwards(small, head, asked)


def whole_afterwards(small: Settings, head: Trajectory, asked: list[str]) -> None:
    """Each record that names another address is a dead letter, none is followed, and what comes after is there."""
    view = Materialiser(small)
    view.start()
    try:
        for _ in range(2):  # dead letters are read back
            assert view.positions.wait_for(view.end_offsets_now(), WAIT_S) == {}
        assert rows(view, "SELECT response_id, response_token_count FROM triplets ORDER BY ALL") == [
            (f"resp-{n}", TOKENS) for n in range(1, 5)
        ]
        assert rows(view, "SELECT rollout_id, payload_url FROM trajectories") == [("r1", head.payload_url)]
        assert (
            rows(view, "SELECT reason, origin_topic FROM dead_letters") == [("payload_unavailable", "trajectories")] * 4
        )
        assert asked == []
    finally:
        view.stop()


def test_without_a_folder_the_calls_that_do_not_fit_are_dropped(small: Settings, publisher: KafkaPublisher) -> None:
    spans = [proxy_span(n, [n] * TOKENS, [n] * TOKENS) for n in range(1, 4)]
    with WorkerProcess(small.model_copy(update={"large_records_dir": None})):
        for record in [opened(), *spans, closed()]:
            publisher.publish(SPANS, "r1", record).result(WAIT_S)
        (trajectory,) = TopicReader(small, TRAJECTORIES).wait_for(1)
    assert isinstance(trajectory, Trajectory)
    assert (len(trajectory.triplets), [drop.reason for drop in trajectory.drops]) == (1, ["too_large"] * 2)
    assert all("over" in drop.detail for drop in trajectory.drops)
