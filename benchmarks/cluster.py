"""Kafka for a benchmark: the cluster that is named in the environment, or a broker of its own."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightstream.broker import EmbeddedBroker
from lightstream.runtime.kafka import create_topics
from lightstream.runtime.settings import Settings


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster and the folder of a measurement."""

    servers: str
    data_dir: Path

    def settings(self, *, folder: str = "", **changes: Any) -> Settings:
        """Settings with topics of their own, which exist; files go into ``folder`` of the data folder."""
        settings = Settings.load(
            kafka_bootstrap_servers=self.servers,
            data_dir=self.data_dir / folder,
            topic_prefix=f"bench{uuid.uuid4().hex[:8]}.",
            **changes,
        )
        create_topics(settings)
        return settings


@contextmanager
def cluster() -> Generator[Cluster]:
    """Yields the cluster; a broker that was started for it is stopped, and its folder deleted, afterwards."""
    with ExitStack() as stack:
        data_dir = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = Settings.load().kafka_bootstrap_servers
        if servers is None:
            servers = stack.enter_context(EmbeddedBroker(Settings.load(data_dir=data_dir))).start()
        yield Cluster(servers, data_dir)
