"""The processes of a measurement, and the processor time that each has used."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lightstream.runtime.kafka import create_topics
from lightstream.runtime.settings import Settings
from lightstream.store_views.stores import InMemoryLightningStore
from lightstream.store_views.stores.http import LightningStoreServer
from lightstream.up import Stack

BROKER_PID = "BENCHMARK_BROKER_PID"
"""Environment variable: the process id of the broker on this machine that the settings name."""

STORE_FROM_MEMORY = "from benchmarks.store.processes import serve_memory; serve_memory()"


@dataclass
class Processes:
    """The running processes, by name, and the settings that reach them. The calling process is none of them."""

    settings: Settings
    pids: Mapping[str, Callable[[], int | None]] = field(default_factory=dict[str, Callable[[], "int | None"]])

    def cpu_s(self) -> dict[str, float]:
        """Processor time of each process since it started, all threads, in seconds."""
        known = {name: pid() for name, pid in self.pids.items()}
        return {name: cpu_s_of(pid) for name, pid in known.items() if pid is not None}


def settings_for(servers: str, data_dir: Path) -> Settings:
    """Settings of a measurement: topics of its own on that cluster, a data folder of its own."""
    name = uuid.uuid4().hex[:8]
    settings = Settings.load(
        kafka_bootstrap_servers=servers, topic_prefix=f"bench{name}.", data_dir=data_dir / name, publish_timeout_s=30.0
    )
    create_topics(settings)
    return settings


@contextmanager
def running(settings: Settings, services: Sequence[str], broker_pid: int | None) -> Generator[Processes]:
    """The services, as users run them; ready when this yields."""
    with Stack(settings, services=services) as stack:
        pids: dict[str, Callable[[], int | None]] = {
            name: (lambda name=name: stack.supervisor.pid(name))  # type: ignore[misc]  # bound per name
            for name in services
        }
        yield Processes(stack.settings, pids | {"broker": lambda: broker_pid})


@contextmanager
def serving(settings: Settings, *, on_kafka: bool) -> Generator[Processes]:
    """The store server as a process of its own, on Kafka (whose other services run already) or in memory."""
    program = ["-m", "lightstream.cli", "store"] if on_kafka else ["-c", STORE_FROM_MEMORY]
    with Stack(settings, services=[], programs={"store": [sys.executable, *program]}) as stack:
        yield Processes(stack.settings, {"store": lambda: stack.supervisor.pid("store")})


def serve_memory() -> None:
    """Serve a store in memory until SIGTERM. Blocking."""
    import asyncio
    import signal

    settings, store = Settings.load(), InMemoryLightningStore()
    server = LightningStoreServer(store, settings=settings)

    async def serve() -> None:
        asked_to_stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked_to_stop.set)
        await server.start()
        await asked_to_stop.wait()
        await server.stop()
        await store.close()

    asyncio.run(serve())


def cpu_s_of(pid: int) -> float:
    """Processor time of a process since it started, all threads, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
