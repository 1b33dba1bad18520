"""``lightstream status``: the processes, how full topics are, how far each consumer group lags, and the last runs."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

# A public name that the package's __all__ lacks.
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # pyright: ignore[reportPrivateImportUsage]  # isort: skip
from rich.console import Console
from rich.table import Table

from lightstream.broker import EmbeddedBrokers
from lightstream.broker.config import BrokerFiles
from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.runtime.kafka import connected, kafka_unavailable
from lightstream.runtime.processes import read_restarts
from lightstream.runtime.services import Service, running_services
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.topics import TOPICS, topic_named

from .formats import Format
from .load import needs
from .runs import all_runs, print_runs

RUNS_SHOWN = 10
MEBIBYTE = 1024 * 1024
VIEW_PATIENCE_S = 2.0
ADMIN_TIMEOUT_S = 10.0
READY_TIMEOUT_S = 5.0
EARLIEST: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # the library leaves it untyped
LATEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # as above
console = Console(highlight=False)


def run_status(settings: Settings, output: Format) -> None:
    """Print the running processes and their states."""
    services = running_services(settings)
    brokers = EmbeddedBrokers(settings)
    embedded = settings.kafka_bootstrap_servers is None or bool(brokers.services)
    folders = [BrokerFiles.of(settings, broker.node).records for broker in brokers.each]
    cluster: ClusterState | None = None
    trouble = ""
    rebuilding: dict[str, Any] | None = None
    runs: list[dict[str, Any]] = []
    try:
        cluster = read_cluster_state(settings, folders if embedded else [])
    except ServiceUnavailableError as error:
        trouble = str(error)
    if cluster is not None and (settings.view_url or any(service.name == "view" for service in services)):
        try:
            lags, rebuilding = _ask_view(settings)
            cluster.lags.extend(lags)
            runs = all_runs(settings, RUNS_SHOWN)
        except ServiceUnavailableError as error:
            trouble = str(error)
    unready = {service.name: reasons for service in services if (reasons := _unready(service))}
    if output is Format.JSON:
        body = {
            "services": [asdict(service) for service in services],
            "restarts": [asdict(noted) for noted in read_restarts(settings).values()],
            "topics": [] if cluster is None else [asdict(topic) for topic in cluster.topics],
            "lags": [] if cluster is None else [asdict(lag) for lag in cluster.lags],
            "rebuilding": rebuilding,
            "runs": runs,
            "unready": unready,
            "trouble": trouble,
        }
        print(json.dumps(body, indent=2))
        return
    console.print(_services_table(services, settings))
    for noted in read_restarts(settings).values():
        ago = _duration((time.time_ns() - noted.last_unix_nano) // NANOS_PER_SECOND)
        console.print(f"{noted.name} was started again {noted.count} times, the last time {ago} ago: it {noted.reason}")
    for name, reasons in unready.items():
        console.print(f"{name} is not ready: {'; '.join(reasons)}")
    if cluster is None:
        console.print(trouble)
        return
    console.print(_topics_table(cluster))
    console.print(_lags_table(cluster))
    if rebuilding is not None:
        console.print(_rebuilding_line(rebuilding))
    if runs:
        console.print(f"Runs, of {RUNS_SHOWN} that changed last (`lightstream runs` shows all)", style="italic")
        print_runs(console, runs)
    if trouble:
        console.print(trouble)


def _ask_view(settings: Settings) -> tuple[list[GroupLag], dict[str, Any] | None]:
    """Return the view's lag, since it keeps its offsets in its own file, and its progress while it rebuilds."""
    with needs("view"):
        from lightstream.store_views.client import ViewClient
    client = ViewClient(settings, patience_s=VIEW_PATIENCE_S)
    try:
        answer = client.positions()
    finally:
        client.close()
    positions: dict[str, dict[str, int]] = answer["positions"]
    lag: dict[str, dict[str, int]] = answer["lag"]
    lags = [
        GroupLag(
            "(view)",
            topic_named(topic).full_name(settings.topic_prefix),
            sum(positions.get(topic, {}).values()),
            sum(behind.values()),
        )
        for topic, behind in lag.items()
    ]
    return lags, answer["rebuilding"]


def _unready(service: Service) -> list[str]:
    """The reasons for which a process says that its answers are not of now; none where it does not say so."""
    address = urlsplit(service.health or service.address)  # the first has no TLS
    if address.scheme != "http" or address.hostname is None:
        return []
    connection = HTTPConnection(address.hostname, address.port, timeout=READY_TIMEOUT_S)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        if answer.status != HTTPStatus.SERVICE_UNAVAILABLE:
            return []
        return [str(reason) for reason in json.loads(answer.read())["reasons"]]
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return []  # it is just starting or ending, or no server of ours
    finally:
        connection.close()


def _rebuilding_line(progress: Mapping[str, Any]) -> str:
    left_s = progress["seconds_left"]
    remaining = "" if left_s is None else f", {_duration(int(left_s))} left"
    return (
        f"The view has read {progress['records_done']:,} of {progress['records_total']:,} records, "
        f"{progress['records_per_s']:,.0f} a second{remaining}; until then its answers lack rows."
    )


def _services_table(services: list[Service], settings: Settings) -> Table:
    table = Table(title=f"Processes with the data folder {settings.data_dir}", title_justify="left")
    table.add_column("process")
    table.add_column("address")
    for right in ("id", "up for", "memory"):
        table.add_column(right, justify="right")
    if settings.kafka_bootstrap_servers:
        table.add_row("(Kafka named)", settings.kafka_bootstrap_servers, "-", "-", "-")
    for service in services:
        up_for_s = max(0, time.time_ns() - service.started_unix_nano) // NANOS_PER_SECOND
        table.add_row(service.name, service.address or "-", str(service.pid), _duration(up_for_s), _memory(service.pid))
    if not table.row_count:
        table.add_row("none", "start all with `lightstream up`", "", "", "")
    return table


def _topics_table(cluster: ClusterState) -> Table:
    table = Table(title="Topics", title_justify="left")
    table.add_column("topic")
    for right in ("partitions", "records", "on disk"):
        table.add_column(right, justify="right")
    for topic in cluster.topics:
        size = "-" if topic.stored_bytes is None else f"{topic.stored_bytes / MEBIBYTE:,.1f} MiB"
        table.add_row(topic.topic, str(topic.partitions), f"{topic.records:,}", size)
    if not table.row_count:
        table.add_row("none", "", "", "")
    return table


def _lags_table(cluster: ClusterState) -> Table:
    table = Table(title="Consumers", title_justify="left")
    table.add_column("group")
    table.add_column("topic")
    for right in ("committed", "lag"):
        table.add_column(right, justify="right")
    for lag in cluster.lags:
        table.add_row(lag.group, lag.topic, f"{lag.committed:,}", f"{lag.lag:,}")
    if not table.row_count:
        table.add_row("none", "", "", "")
    return table


def _duration(seconds: int) -> str:
    hours, rest = divmod(seconds, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}"


def _memory(pid: int) -> str:
    """Resident memory, where the system reports it."""
    try:
        return f"{psutil.Process(pid).memory_info().rss / MEBIBYTE:,.0f} MiB"
    except psutil.Error:
        return "-"


@dataclass(frozen=True, slots=True)
class TopicSize:
    """One topic.

    Attributes:
        records: offsets between the first and the end, over all partitions. Transaction markers and what compaction
            removed in between are counted too.
        stored_bytes: size on disk, where the embedded broker keeps it; else ``None``.
    """

    topic: str
    partitions: int
    records: int
    stored_bytes: int | None


@dataclass(frozen=True, slots=True)
class GroupLag:
    """One consumer group on one topic: records not yet committed, over the partitions it has committed."""

    group: str
    topic: str
    committed: int
    lag: int


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Our topics that exist, and the groups that read them."""

    topics: list[TopicSize]
    lags: list[GroupLag]


def read_cluster_state(settings: Settings, records_folders: Sequence[Path] = ()) -> ClusterState:
    """Ask the cluster.

    Args:
        records_folders: where embedded brokers keep their partitions, to tell their sizes on disk, all copies together.

    Raises:
        ServiceUnavailableError: no cluster is known or it does not answer.
    """
    admin, cluster = connected(settings, timeout_s=ADMIN_TIMEOUT_S)
    metadata, names = cluster.topics, [topic.full_name(settings.topic_prefix) for topic in TOPICS]
    try:
        partitions = [TopicPartition(n, p) for n in names if n in metadata for p in metadata[n].partitions]
        first = _offsets(admin, partitions, EARLIEST)
        end = _offsets(admin, partitions, LATEST)
        lags = _lags(admin, end)
    except KafkaException as error:
        raise kafka_unavailable(error) from error
    topics = [
        TopicSize(
            name,
            len(metadata[name].partitions),
            sum(end[name, p] - first[name, p] for p in metadata[name].partitions),
            sum(stored_bytes(folder, name) for folder in records_folders) if records_folders else None,
        )
        for name in names
        if name in metadata
    ]
    return ClusterState(topics, lags)


def stored_bytes(records_folder: Path, topic: str) -> int:
    """Disk space of a topic's segments in a broker's folder."""
    total = 0
    for folder in records_folder.glob(f"{topic}-[0-9]*"):
        if folder.name.rpartition("-")[0] == topic:
            for segment in folder.glob("*.log"):
                try:
                    total += segment.stat().st_size
                except FileNotFoundError:
                    continue  # deleted by the broker meanwhile
    return total


def _offsets(admin: AdminClient, partitions: list[TopicPartition], which: OffsetSpec) -> dict[tuple[str, int], int]:
    if not partitions:
        return {}
    futures = admin.list_offsets(dict.fromkeys(partitions, which), request_timeout=ADMIN_TIMEOUT_S)
    return {(p.topic, p.partition): future.result().offset for p, future in futures.items()}


def _lags(admin: AdminClient, end: Mapping[tuple[str, int], int]) -> list[GroupLag]:
    listed = admin.list_consumer_groups(request_timeout=ADMIN_TIMEOUT_S).result()
    committed: dict[tuple[str, str], int] = {}
    behind: dict[tuple[str, str], int] = {}
    for group in sorted(valid.group_id for valid in listed.valid):
        request = ConsumerGroupTopicPartitions(group)
        answer = admin.list_consumer_group_offsets([request], request_timeout=ADMIN_TIMEOUT_S)[group]
        for position in answer.result().topic_partitions or []:
            here = (position.topic, position.partition)
            if here in end and position.offset >= 0:
                key = (group, position.topic)
                committed[key] = committed.get(key, 0) + position.offset
                behind[key] = behind.get(key, 0) + max(0, end[here] - position.offset)
    return [GroupLag(group, topic, committed[group, topic], behind[group, topic]) for group, topic in committed]
