"""The compose file fits the program: its commands, its settings, and the broker settings that our processes rely on."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from lightstream.broker import KAFKA_VERSION
from lightstream.broker.config import BrokerFiles, server_properties
from lightstream.cli.app import app
from lightstream.runtime.settings import ENVIRONMENT_PREFIX, Settings

FOLDER = Path(__file__).parents[2] / "docker"
PLACES_AND_SIZES = {
    "process.roles", "node.id", "controller.quorum.voters", "listeners", "advertised.listeners",
    "controller.listener.names", "inter.broker.listener.name", "listener.security.protocol.map", "log.dirs",
    "offsets.topic.num.partitions", "transaction.state.log.num.partitions",
    "share.coordinator.state.topic.num.partitions", "socket.request.max.bytes", "num.network.threads",
    "num.io.threads", "background.threads", "group.coordinator.threads", "share.coordinator.threads",
    "log.segment.bytes", "log.cleaner.dedupe.buffer.size", "broker.session.timeout.ms", "broker.heartbeat.interval.ms",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
}  # fmt: skip
"""What may differ between the embedded broker and one in a container: addresses, and what keeps the former small."""


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    yaml: Any = importlib.import_module("yaml")  # by name: it has no types
    parsed: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    return parsed


def test_every_command_exists(compose: dict[str, Any]) -> None:
    ours = {name: service for name, service in compose["services"].items() if name != "kafka"}
    assert set(ours) == {"topics", "worker", "view", "proxy", "gateway", "store", "policy"}
    for service in ours.values():
        _parse(service["command"])
    with pytest.raises(TyperException, match="--no-such-option"):
        _parse([*ours["policy"]["command"], "--no-such-option"])


def _parse(arguments: list[str]) -> None:
    """Read arguments as the command line does, without doing what they say.

    Raises:
        TyperException: the command does not take them.
    """
    command, name = typer.main.get_command(app), "lightstream"
    assert isinstance(command, TyperGroup)
    while isinstance(command, TyperGroup):
        name, *arguments = arguments
        command = command.commands[name]
    command.make_context(name, list(arguments))


def test_every_setting_exists_and_is_valid(compose: dict[str, Any]) -> None:
    values: dict[str, str] = compose["x-lightstream"]["environment"]
    names = {name.removeprefix(ENVIRONMENT_PREFIX).lower(): value for name, value in values.items()}
    assert set(names) <= set(Settings.model_fields)
    Settings.load(**{name: value for name, value in names.items() if "${" not in value})


def test_the_broker_is_the_one_we_test_with(compose: dict[str, Any], tmp_path: Path) -> None:
    kafka = compose["services"]["kafka"]
    assert kafka["image"] == f"apache/kafka:{KAFKA_VERSION}"
    settings = Settings.load(data_dir=tmp_path)
    lines = server_properties(settings, BrokerFiles.of(settings), 1, 2).splitlines()
    embedded = dict(line.split("=", 1) for line in lines)
    contained = {key: str(value) for key, value in kafka["environment"].items()}
    for key in set(embedded) - PLACES_AND_SIZES:
        assert contained[f"KAFKA_{key.upper().replace('.', '_')}"] == embedded[key], key


def test_the_image_holds_every_source_folder() -> None:
    dockerfile = (FOLDER / "Dockerfile").read_text()
    ignored = (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
    package = FOLDER.parent / "lightstream"
    links = [path.readlink().parts[1] for path in package.iterdir() if path.is_symlink()]
    assert links
    sources = {package.name, *links}
    for name in sources:
        assert f"COPY {name} {name}\n" in dockerfile
        assert f"!{name}" in ignored


def test_extras_of_the_images_exist(compose: dict[str, Any]) -> None:
    import tomllib

    extras = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    used = [compose["services"]["policy"]["build"]["args"]["EXTRAS"]]
    used += [line.split("=")[1] for line in (FOLDER / "Dockerfile").read_text().splitlines() if "ARG EXTRAS=" in line]
    for name in ",".join(used).split(","):
        assert name in extras, json.dumps(sorted(extras))
