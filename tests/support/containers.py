"""Kafka in a container, where a Docker engine answers."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Generator
from typing import Any

from lightstream.broker import KAFKA_VERSION
from lightstream.broker.config import BrokerFiles, server_properties
from lightstream.broker.startup import answers
from lightstream.runtime.ports import free_port
from lightstream.runtime.settings import Settings
from tests.support.waiting import eventually

ENGINE_TIMEOUT_S = 5
READY_TIMEOUT_S = 180.0
"""The image may have to be pulled first."""


def engine_answers() -> bool:
    """Whether there is a Docker engine to start containers with, and its client is installed."""
    try:  # by name, and by its module: our folder docker/ would be taken for the package where that is not installed
        failed: type[Exception] = importlib.import_module("docker.errors").DockerException
    except ModuleNotFoundError:
        return False
    docker: Any = importlib.import_module("docker")
    try:
        client = docker.from_env(timeout=ENGINE_TIMEOUT_S)
    except failed:
        return False
    try:
        return bool(client.ping())
    except failed:
        return False
    finally:
        client.close()


@contextlib.contextmanager
def kafka_container(settings: Settings) -> Generator[str]:
    """The official image, configured as the embedded broker is; yields the address for ``bootstrap.servers``."""
    from testcontainers.core.container import DockerContainer

    port, controller_port = free_port(), free_port()
    container = DockerContainer(f"apache/kafka:{KAFKA_VERSION}").with_bind_ports(port, port)
    for line in server_properties(settings, BrokerFiles.of(settings), port, controller_port).splitlines():
        key, _, value = line.partition("=")
        if key == "log.dirs":
            continue  # a folder of the container's own
        if key == "listeners":
            value = f"PLAINTEXT://0.0.0.0:{port},CONTROLLER://127.0.0.1:{controller_port}"
        container.with_env(f"KAFKA_{key.upper().replace('.', '_')}", value)
    with container:
        address = f"127.0.0.1:{port}"
        eventually(lambda: answers(address), timeout_s=READY_TIMEOUT_S, what=f"Kafka in a container at {address}")
        yield address
