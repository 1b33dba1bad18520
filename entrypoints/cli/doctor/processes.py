"""The doctor's checks of the processes that run with this data folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

from lightstream.runtime.processes import read_restarts
from lightstream.runtime.services import Service, running_services
from lightstream.runtime.settings import Settings

from .finding import Finding, Level

ANSWER_TIMEOUT_S = 5.0
RESTARTS_WARNED = 3
NEEDED = ("worker", "view")
"""Without the first there are no trajectories, without the second no answers."""


def processes(settings: Settings) -> Iterator[Finding]:
    """Whether each process answers, is ready, and stays."""
    services = running_services(settings)
    if not services:
        yield Finding("processes", Level.FINE, "nothing runs with this data folder.", "lightstream up")
        return
    for service in services:
        if service.health or not any(other.health for other in services if other.pid == service.pid):
            yield from _health(service)  # of a process with two addresses (HTTP and gRPC), at the one for health
    names = {service.name for service in services}
    if names & {"proxy", "gateway", "store"}:
        for name in NEEDED:
            if name not in names:
                text = f"{', '.join(sorted(names))} run, and no {name} with this data folder."
                yield Finding("processes", Level.WARNING, text, f"Unless one runs elsewhere: lightstream {name}")
    for noted in read_restarts(settings).values():
        if noted.count >= RESTARTS_WARNED:
            yield Finding(
                "processes",
                Level.WARNING,
                f"{noted.name} was started again {noted.count} times; the last time it {noted.reason}.",
                f"{settings.data_dir / 'logs' / noted.name}.log has the reason.",
            )


def _health(service: Service) -> Iterator[Finding]:
    address = urlsplit(service.health or service.address)
    if address.scheme != "http" or address.hostname is None:
        return
    connection = HTTPConnection(address.hostname, address.port, timeout=ANSWER_TIMEOUT_S)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        body = answer.read()
        reasons = json.loads(body)["reasons"] if answer.status == HTTPStatus.SERVICE_UNAVAILABLE else []
    except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
        text = f"{service.name} (process {service.pid}) does not answer at {service.address}: {error!r}."
        yield Finding("processes", Level.ERROR, text, f"`lightstream up` starts it again; else stop {service.pid}.")
        return
    finally:
        connection.close()
    if reasons:
        text = f"{service.name} is not ready: {'; '.join(map(str, reasons))}."
        yield Finding("processes", Level.WARNING, text, "docs/operations.md says what each reason means.")
    else:
        yield Finding("processes", Level.FINE, f"{service.name} answers, and is ready.")
