"""``lightstream status``."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lightstream.broker import EmbeddedBroker
from lightstream.broker.config import BrokerFiles
from lightstream.schemas.clock import NANOS_PER_SECOND
from lightstream.schemas.errors import ServiceUnavailableError, SettingsError
from lightstream.schemas.services import Service, running_services
from lightstream.schemas.settings import Settings
from lightstream.schemas.topics import topic_named

from .cluster_state import ClusterState, GroupLag, read_cluster_state
from .load import load

__all__ = ["run_status"]

MEBIBYTE = 1024 * 1024
VIEW_PATIENCE_S = 2.0
console = Console(highlight=False)


def run_status(settings: Settings, output: str) -> None:
    """Print what runs and its state, as ``table`` or ``json``.

    Raises:
        SettingsError: there is no such output.
    """
    if output not in ("table", "json"):
        raise SettingsError(f"--format must be one of table, json, not {output}.")
    services = running_services(settings)
    files = BrokerFiles.of(settings)
    embedded = settings.kafka_bootstrap_servers is None or EmbeddedBroker(settings).is_running
    cluster: ClusterState | None = None
    trouble = ""
    try:
        cluster = read_cluster_state(settings, files.records if embedded else None)
    except ServiceUnavailableError as error:
        trouble = str(error)
    if cluster is not None and (settings.view_url or any(service.name == "view" for service in services)):
        try:
            cluster.lags.extend(_view_lags(settings))
        except ServiceUnavailableError as error:
            trouble = str(error)
    if output == "json":
        body = {
            "services": [asdict(service) for service in services],
            "topics": [] if cluster is None else [asdict(topic) for topic in cluster.topics],
            "lags": [] if cluster is None else [asdict(lag) for lag in cluster.lags],
            "trouble": trouble,
        }
        print(json.dumps(body, indent=2))
        return
    console.print(_services_table(services, settings))
    if cluster is None:
        console.print(trouble)
        return
    console.print(_topics_table(cluster))
    console.print(_lags_table(cluster))
    if trouble:
        console.print(trouble)


def _view_lags(settings: Settings) -> list[GroupLag]:
    """How far the view is behind; it keeps its offsets in its own file, not in Kafka."""
    client = load("lightstream.store_views.client", "ViewClient")(settings, patience_s=VIEW_PATIENCE_S)
    try:
        answer: dict[str, dict[str, dict[str, int]]] = client.positions()
    finally:
        client.close()
    positions, lag = answer["positions"], answer["lag"]
    return [
        GroupLag(
            "(view)",
            topic_named(topic).full_name(settings.topic_prefix),
            sum(positions.get(topic, {}).values()),
            sum(behind.values()),
        )
        for topic, behind in lag.items()
    ]


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
        lines = Path(f"/proc/{pid}/status").read_text("ascii", errors="replace").splitlines()
    except OSError:
        return "-"
    resident = next((line.split()[1] for line in lines if line.startswith("VmRSS:")), None)
    return "-" if resident is None else f"{int(resident) / 1024:,.0f} MiB"
