"""The Faust application, its settings from ours, and its name in the consumer group."""

from __future__ import annotations

import fcntl
import hashlib
import socket
import ssl
from collections.abc import Generator
from contextlib import contextmanager

import faust
from faust.auth import Credentials, OAuthCredentials
from yarl import URL

from lightstream.runtime.files import private_folder
from lightstream.runtime.kafka import bootstrap_servers
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError

from .oidc import ClientCredentials
from .transport import LightstreamTransport

SESSION_TIMEOUT_S = 6.0
"""A killed worker's partitions go to another after this long (6 s is the least that brokers allow by default)."""

HEARTBEAT_INTERVAL_S = 1.5
REQUEST_TIMEOUT_S = 30.0
STREAM_BUFFER_EVENTS_MAX = 100_000
"""Never reached: the consumer's budget stops fetching long before (see :mod:`.transport`)."""

POLL_RECORDS_MAX = 1000


def group_id(settings: Settings) -> str:
    """The consumer group of all workers of one topic prefix."""
    return f"{settings.topic_prefix}lightstream-worker"


@contextmanager
def group_member(settings: Settings) -> Generator[str | None]:
    """The name in the consumer group (KIP-345) of the worker of this machine and data folder, while it runs.

    Without a name, Kafka keeps a killed worker's partitions for it until the session times out, 6 s later. With one,
    the next process of that name takes them over; so only one may have it, and a lock on a file, which ends with the
    process however that ends, decides which. A second worker with the same data folder gets ``None``.
    """
    folder = settings.data_dir / "worker"
    private_folder(folder)
    with (folder / "member.lock").open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            machine_and_folder = f"{socket.gethostname()}:{settings.data_dir.resolve()}"
            yield f"worker-{hashlib.sha256(machine_and_folder.encode()).hexdigest()[:16]}"


def make_app(settings: Settings, instance_id: str | None = None) -> faust.App:
    """An app without agents yet. Connects to nothing until it is started.

    Args:
        instance_id: its name in the consumer group, if it is to keep its partitions over a restart.

    Raises:
        ServiceUnavailableError: no cluster was named and none runs here.
        SettingsError: the security settings do not fit together.
    """
    servers = [URL(f"kafka://{server.strip()}") for server in bootstrap_servers(settings).split(",")]
    data_dir = settings.data_dir / "worker"  # Faust insists on a folder; nothing is kept in it
    private_folder(data_dir)
    app = faust.App(
        group_id(settings),
        broker=servers,
        broker_credentials=_credentials(settings),
        broker_session_timeout=SESSION_TIMEOUT_S,
        broker_heartbeat_interval=HEARTBEAT_INTERVAL_S,
        broker_request_timeout=REQUEST_TIMEOUT_S,
        broker_max_poll_records=POLL_RECORDS_MAX,
        consumer_group_instance_id=instance_id,
        consumer_auto_offset_reset="earliest",
        consumer_max_fetch_size=settings.record_bytes_max,
        producer_max_request_size=settings.record_bytes_max,
        producer_acks=-1,
        stream_buffer_maxsize=STREAM_BUFFER_EVENTS_MAX,
        stream_recovery_delay=0.0,
        stream_wait_empty=False,
        processing_guarantee="at_least_once",
        store="memory://",
        datadir=data_dir,
        key_serializer="raw",
        value_serializer="raw",
        topic_allow_declare=False,
        topic_disable_leader=True,
        autodiscover=False,
        web_enabled=False,
    )
    app.transport = LightstreamTransport(servers, app)
    return app


def _credentials(settings: Settings) -> Credentials | None:
    protocol = settings.kafka_security_protocol
    context = None
    if protocol.endswith("SSL"):
        context = ssl.create_default_context(
            cafile=str(settings.kafka_ssl_ca_file) if settings.kafka_ssl_ca_file else None
        )
        if settings.kafka_ssl_certificate_file is not None:
            password = settings.kafka_ssl_key_password
            context.load_cert_chain(
                settings.kafka_ssl_certificate_file,
                settings.kafka_ssl_key_file,
                None if password is None else password.get_secret_value(),
            )
    if protocol == "SSL":
        return faust.SSLCredentials(context)
    if protocol == "PLAINTEXT":
        return None
    if not settings.kafka_sasl_mechanism:
        raise SettingsError(
            f"LIGHTSTREAM_KAFKA_SECURITY_PROTOCOL is {protocol}, but LIGHTSTREAM_KAFKA_SASL_MECHANISM is not set.",
            next_step="Set it to PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.",
        )
    if settings.kafka_sasl_mechanism == "OAUTHBEARER":
        return OAuthCredentials(oauth_cb=ClientCredentials(settings), ssl_context=context)
    password = settings.kafka_sasl_password
    return faust.SASLCredentials(
        username=settings.kafka_sasl_username,
        password=None if password is None else password.get_secret_value(),
        mechanism=settings.kafka_sasl_mechanism,
        ssl_context=context,
    )
