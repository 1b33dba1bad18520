"""`lightstream doctor`: each planted fault is named, with a next step; a healthy system has none."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import admin as kafka_admin
from confluent_kafka.admin import AdminClient

from lightstream.cli.doctor import Finding, Level, findings
from lightstream.cli.doctor.cluster import clock, cluster
from lightstream.runtime.clock import ManualClock
from lightstream.runtime.kafka import KafkaPublisher, common_config, create_topics
from lightstream.runtime.processes import Restarts, note_restart
from lightstream.runtime.services import Service, announce
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import EventKind, RolloutEvent
from lightstream.schemas.topics import ROLLOUT_EVENTS, TRAJECTORIES
from lightstream.store_views.materialiser import default_path
from tests.support.certificates import Authority
from tests.support.sasl_broker import PASSWORD, USER, login_broker
from tests.support.topic_limits import limit_topic
from tests.support.waiting import eventually

ADMIN: Any = kafka_admin  # these names are public, but not in its __all__
HOUR_NANOS = 3600 * 10**9


def change(settings: Settings, **values: Any) -> Settings:
    return settings.model_copy(update=values)


@dataclass(frozen=True)
class Place:
    """Where a fault is planted.

    Attributes:
        settings: of topics that are there, with a data folder of its own.
        url: of an HTTP server that answers everything with 503 and reasons.
    """

    settings: Settings
    url: str


class _Unready(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"status": "unready", "reasons": ["it rebuilds"]}).encode()
        self.send_response(503)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base's name
        """Nothing."""


@pytest.fixture
def place(settings: Settings, tmp_path: Path) -> Iterator[Place]:
    create_topics(settings)
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    with HTTPServer(("127.0.0.1", 0), _Unready) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Place(change(settings, data_dir=folder), f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()


def service(name: str, address: str) -> Service:
    return Service(name, address, os.getpid(), time.time_ns())


def tokens_in(settings: Settings, text: str, mode: int = 0o600) -> Settings:
    file = settings.data_dir / "tokens.toml"
    file.write_text(text)
    file.chmod(mode)
    return change(settings, tokens_file=file)


def token(expires: str) -> str:
    digest = hashlib.sha256(b"x").hexdigest()
    return f'[[token]]\nname = "team"\nsha256 = "{digest}"\nscopes = ["read"]\nexpires = {expires}\n'


def topic_deleted(place: Place) -> Settings:
    admin = AdminClient(common_config(place.settings))
    name = TRAJECTORIES.full_name(place.settings.topic_prefix)
    for future in admin.delete_topics([name], request_timeout=60).values():
        future.result()
    eventually(lambda: name not in admin.list_topics(timeout=10).topics, what="the topic is gone")
    return place.settings


def topic_changed(place: Place) -> Settings:
    limit_topic(place.settings, TRAJECTORIES, 1000)
    return place.settings


def folder_open(place: Place) -> Settings:
    folder = place.settings.data_dir / "logs"
    folder.mkdir()
    folder.chmod(0o755)
    return place.settings


def other_view(place: Place) -> Settings:
    file = default_path(place.settings)
    file.parent.mkdir(mode=0o700)
    file.with_name("lightstream-0123456789abcdef.duckdb").write_bytes(b"")
    return place.settings


def silent(place: Place) -> Settings:
    announce(place.settings, service("gateway", "http://127.0.0.1:1"))
    return place.settings


def unready(place: Place) -> Settings:
    announce(place.settings, service("view", place.url))
    return place.settings


def lonely(place: Place) -> Settings:
    announce(place.settings, service("proxy", ""))
    return place.settings


def restarted(place: Place) -> Settings:
    announce(place.settings, service("worker", ""))
    note_restart(place.settings, Restarts("worker", 4, "ended with 1", time.time_ns()))
    return place.settings


def certificate(place: Place, seconds: float) -> Settings:
    file = place.settings.data_dir / "server.pem"
    Authority(place.settings.data_dir).put(file, seconds=seconds)
    file.chmod(0o600)
    return change(place.settings, tls_certificate_file=file)


FAULTS: dict[str, tuple[Callable[[Place], Settings], Level, str]] = {
    "a topic is missing": (topic_deleted, Level.ERROR, "has no topic .*trajectories"),
    "a topic has other settings": (topic_changed, Level.ERROR, r"max\.message\.bytes: declared \d+, found 1000"),
    "other partitions": (
        lambda place: change(place.settings, topic_partitions=place.settings.topic_partitions + 1),
        Level.ERROR,
        "partitions: declared",
    ),
    "a disk that is full": (
        lambda place: change(place.settings, disk_free_bytes_min=2**60),
        Level.ERROR,
        "less than the .* GiB at which all writing pauses",
    ),
    "the view of another version": (other_view, Level.WARNING, "is the view of another version"),
    "a folder that others read": (folder_open, Level.WARNING, r"logs \(0755\)"),
    "a tokens file that others read": (
        lambda place: tokens_in(place.settings, token("2999-01-01"), 0o644),
        Level.WARNING,
        r"tokens\.toml \(0644\)",
    ),
    "a tokens file with a typo": (
        lambda place: tokens_in(place.settings, token("2999-01-01").replace("scopes", "scope")),
        Level.ERROR,
        "line 4: 'scope' is no field",
    ),
    "a token that has expired": (
        lambda place: tokens_in(place.settings, token("2020-01-01")),
        Level.WARNING,
        "token of 'team' .* has expired",
    ),
    "an open server": (lambda place: change(place.settings, host="0.0.0.0"), Level.ERROR, "some ask for no token"),
    "a server that was opened": (
        lambda place: change(place.settings, host="0.0.0.0", open_to_network=True),
        Level.WARNING,
        "some ask for no token",
    ),
    "a server without TLS": (lambda place: change(place.settings, host="0.0.0.0"), Level.WARNING, "without TLS"),
    "a certificate that has expired": (lambda place: certificate(place, -1), Level.ERROR, "has expired"),
    "a certificate that expires": (lambda place: certificate(place, 3600), Level.WARNING, "expires in 0.0 days"),
    "a port that another has": (
        lambda place: change(place.settings, view_port=int(place.url.rpartition(":")[2])),
        Level.ERROR,
        r"LIGHTSTREAM_VIEW_PORT\) is taken",
    ),
    "a registry that is away": (
        lambda place: change(place.settings, schema_registry_url="http://127.0.0.1:1"),
        Level.ERROR,
        "the Schema Registry at .* does not answer",
    ),
    "a registry that refuses": (
        lambda place: change(place.settings, schema_registry_url=place.url),
        Level.ERROR,
        "the Schema Registry at .* answered 503",
    ),
    "a process that does not answer": (silent, Level.ERROR, "gateway .* does not answer"),
    "a process that is not ready": (unready, Level.WARNING, "view is not ready: it rebuilds"),
    "a process that is missing": (lonely, Level.WARNING, "no worker with this data folder"),
    "a process that does not stay": (restarted, Level.WARNING, "started again 4 times; the last time it ended with 1"),
}


def is_among(found: list[Finding], level: Level, text: str) -> bool:
    return any(one.level is level and re.search(text, one.text) for one in found)


def test_a_healthy_system_has_no_finding(place: Place) -> None:
    found = list(findings(place.settings))
    assert {one.level for one in found} == {Level.FINE}
    assert {one.check for one in found} >= {"kafka", "topics", "disk", "limits", "modes", "tokens", "ports"}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named(place: Place, fault: str) -> None:
    plant, level, text = FAULTS[fault]
    bad = [one for one in findings(plant(place)) if one.level is not Level.FINE]
    assert is_among(bad, level, text)
    assert all(one.next_step for one in bad)


def test_a_process_with_two_addresses_is_asked_at_the_one_for_health(place: Place) -> None:
    """The gateway: HTTP, and gRPC, which answers no such question."""
    announce(place.settings, replace(service("gateway", place.url), health=place.url))
    announce(place.settings, service("gateway-grpc", "http://127.0.0.1:1"))
    found = [one for one in findings(place.settings) if one.check == "processes"]
    assert is_among(found, Level.WARNING, "gateway is not ready")
    assert not is_among(found, Level.ERROR, "gateway-grpc")


def test_a_clock_that_is_late(place: Place) -> None:
    publisher = KafkaPublisher(place.settings)
    event = RolloutEvent(event_id="e", rollout_id="r", kind=EventKind.HEARTBEAT, occurred_unix_nano=time.time_ns())
    publisher.publish(ROLLOUT_EVENTS, "r", event).result(300)
    publisher.close()
    assert is_among(list(clock(place.settings)), Level.FINE, "not from the future")
    late = ManualClock(time.time_ns() - HOUR_NANOS)
    assert is_among(list(clock(place.settings, late)), Level.ERROR, r"3,\d\d\d s behind the broker")


def test_a_cluster_with_logins(tmp_path: Path) -> None:
    """A wrong password, missing rights, and offsets that are forgotten within a day."""
    with login_broker(tmp_path) as broker:
        create_topics(Settings.load(kafka_bootstrap_servers=broker.open))
        admin = broker.admin()
        rule = ADMIN.AclBinding(
            ADMIN.ResourceType.TOPIC,
            "*",
            ADMIN.ResourcePatternType.LITERAL,
            f"User:{USER}",
            "*",
            ADMIN.AclOperation.DESCRIBE,
            ADMIN.AclPermissionType.ALLOW,
        )
        for future in admin.create_acls([rule], request_timeout=60).values():
            future.result()
        login = Settings.load(
            kafka_bootstrap_servers=broker.sasl,
            kafka_security_protocol="SASL_PLAINTEXT",
            kafka_sasl_mechanism="PLAIN",
            kafka_sasl_username=USER,
            kafka_sasl_password=PASSWORD,
        )
        wrong = Settings.load(**login.model_dump() | {"kafka_sasl_password": "another"})
        assert is_among(list(cluster(wrong)), Level.ERROR, "does not let this client in: .*Authentication failed")
        eventually(
            lambda: is_among(list(cluster(login)), Level.ERROR, f"User:{USER} may not READ, WRITE topic"),
            what="the broker knows of the rule",
        )
        assert is_among(list(cluster(login)), Level.WARNING, "does not tell the settings of our topics")
        as_admin = Settings.load(kafka_bootstrap_servers=broker.open)
        assert is_among(list(cluster(as_admin)), Level.WARNING, "forgets offsets after 24 hours")


def test_the_command_says_it_to_programs_and_ends_with_1(place: Place) -> None:
    """In a process that may open few files, and whose Kafka is away."""
    environment = os.environ | place.settings.to_environment() | {"LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    command = f"ulimit -n 512; exec {sys.executable} -m lightstream.cli doctor --format json"
    done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    found = [Finding(one["check"], Level(one["level"]), one["text"]) for one in json.loads(done.stdout)]
    assert is_among(found, Level.WARNING, "may have 512 open files")
    assert is_among(found, Level.ERROR, "Kafka does not answer")
