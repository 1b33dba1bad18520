"""``lightstream up``: a stack in the foreground."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table

from lightstream.producers.otlp.gateway.listeners import CONVENTIONAL_PORTS, GRPC, HTTP
from lightstream.runtime.interrupts import Interrupts
from lightstream.runtime.ports import is_free
from lightstream.runtime.services import running_services
from lightstream.runtime.settings import Settings
from lightstream.up import PolicyOptions, Stack

console = Console(highlight=False, soft_wrap=True)


def run_up(settings: Settings, services: Sequence[str], checkpoint: Path | None, run_id: str) -> None:
    """Start the services, show where they are, and keep them running until SIGINT, SIGTERM or SIGHUP."""
    policy = PolicyOptions(checkpoint, run_id) if "policy" in services else None
    stack = Stack(settings, services=services, policy=policy)
    with Interrupts(signal.SIGTERM, signal.SIGHUP) as interrupts:
        _run(settings, stack, interrupts)
    console.print("Stopped; all records are kept.")


def _run(settings: Settings, stack: Stack, interrupts: Interrupts) -> None:
    console.print("Starting; the first time this fetches Kafka.")
    try:
        stack.start()
        console.print(_overview(stack))
        for line in _otlp_elsewhere(settings, stack):
            console.print(line)
        for service in running_services(stack.settings):
            if service.name == "view":
                console.print(f"See what happens, in a browser: {service.address}")
        console.print(f"Logs are in {settings.data_dir / 'logs'}. Ctrl-C stops everything.")
        interrupts.wait(stack.supervisor.check)
    except KeyboardInterrupt:
        console.print("Stopping.")
    finally:
        stack.stop()


def _otlp_elsewhere(given: Settings, stack: Stack) -> list[str]:
    """A line for each of OTLP's usual ports that the gateway has not, though no setting says so."""
    return [
        f"OTLP over {what} is at {service.address}, since the usual port {port} "
        f"{'was taken at the first start' if is_free(port, given.host) else 'is taken'}: "
        f"OTEL_EXPORTER_OTLP_ENDPOINT={service.address}"
        for service in running_services(stack.settings)
        for name, setting, port, what in _OTLP
        if service.name == name and getattr(given, setting) is None and urlsplit(service.address).port != port
    ]


_OTLP = (
    ("gateway", "gateway_port", CONVENTIONAL_PORTS[HTTP], "HTTP"),
    ("gateway-grpc", "gateway_grpc_port", CONVENTIONAL_PORTS[GRPC], "gRPC"),
)
"""Name of the service, the setting that names its port, the usual one."""


def _overview(stack: Stack) -> Table:
    table = Table("process", "address", "id")
    for service in running_services(stack.settings):
        table.add_row(service.name, service.address or "-", str(service.pid))
    return table
