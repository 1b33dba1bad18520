"""Facts that three embedded brokers agree on before the first of them starts, in one small file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from lightstream.runtime.files import exclusive, private_folder, write_text
from lightstream.runtime.ports import free_port
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import BrokerError

from .config import BrokerFiles
from .java import random_id


@dataclass(frozen=True, slots=True)
class Quorum:
    """Ports of the brokers' controllers, by number, and the id of their cluster."""

    controller_ports: list[int]
    cluster_id: str


def quorum_of(settings: Settings) -> Quorum | None:
    """The agreement of this data folder's brokers, old or new; ``None`` where there is one broker.

    Raises:
        BrokerError: the folder has the records of another number of brokers.
    """
    first = BrokerFiles.of(settings)
    file = first.folder / "quorum.json"
    if settings.brokers == 1:
        if file.exists():
            raise _another_number(first.folder, 3, settings.brokers)
        return None
    private_folder(first.folder)
    with exclusive(first.folder / "quorum.lock"):
        if file.exists():
            return Quorum(**json.loads(file.read_text("utf-8")))
        if first.records.exists():
            raise _another_number(first.folder, 1, settings.brokers)
        ports: list[int] = []
        for _ in range(settings.brokers):
            ports.append(free_port(ports))
        quorum = Quorum(ports, random_id())
        write_text(file, json.dumps(asdict(quorum)))
        return quorum


def _another_number(folder: Path, existing: int, expected: int) -> BrokerError:
    return BrokerError(
        f"the records in {folder} are those of {existing} broker{'s' if existing > 1 else ''}, and "
        f"LIGHTSTREAM_BROKERS is {expected}.",
        next_step=f"Set LIGHTSTREAM_BROKERS={existing}, or name another folder with LIGHTSTREAM_DATA_DIR.",
    )
