"""Kafka's jars: fetched once with jgo, each checked against the SHA-256 in ``kafka.lock.toml``, then kept."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import BrokerError

KAFKA_VERSION = "4.3.1"
"""The version that the lock file pins. 4.4.0 cannot be resolved: its ``kafka-tools-api`` was never published."""

LOCK_FILE = Path(__file__).with_name("kafka.lock.toml")

DOWNLOADS_AT_ONCE = 8
"""46 jars of 70 MB in all: latency dominates, so several at a time."""

DOWNLOAD_TIMEOUT_S = 30
DOWNLOAD_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Jar:
    """One locked jar."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


def locked_jars() -> list[Jar]:
    """The jars that the lock file pins, in class path order."""
    entries: list[dict[str, Any]] = tomllib.loads(LOCK_FILE.read_text("utf-8"))["dependencies"]
    return [Jar(e["groupId"], e["artifactId"], e["version"], e["sha256"]) for e in entries]


def jars_folder(settings: Settings) -> Path:
    """The folder of the jars."""
    return settings.cache_folder / f"kafka-{KAFKA_VERSION}"


def fetch_jars(settings: Settings) -> list[Path]:
    """The class path of the broker. Downloads what is missing or damaged; needs no network once all are there.

    Raises:
        BrokerError: a download failed, or a file is not what the lock file names. Good jars are kept.
    """
    folder = jars_folder(settings)
    jars = locked_jars()
    try:
        with ThreadPoolExecutor(DOWNLOADS_AT_ONCE, thread_name_prefix="lightstream-jars") as pool:
            good = list(pool.map(lambda jar: _is_good(folder / jar.file_name, jar), jars))
            missing = [jar for jar, is_good in zip(jars, good, strict=True) if not is_good]
            if missing:
                folder.mkdir(parents=True, exist_ok=True)
                # Beside the target, so that a finished file moves there in one step.
                with tempfile.TemporaryDirectory(dir=folder, prefix="download-") as scratch:
                    for _ in pool.map(lambda jar: _download(jar, folder, Path(scratch)), missing):
                        pass
    except OSError as error:
        raise BrokerError(
            f"Kafka's files cannot be written to {folder}: {error.strerror or error}.",
            next_step="Free space there, or name another folder with LIGHTSTREAM_CACHE_DIR.",
        ) from error
    return [folder / jar.file_name for jar in jars]


def _download(jar: Jar, folder: Path, scratch: Path) -> None:
    """Fetch one jar with jgo into ``scratch`` and move it to ``folder`` once its hash is right."""
    import requests
    from jgo.config import GlobalSettings
    from jgo.maven import MavenContext

    failure: Exception | None = None
    for attempt in range(DOWNLOAD_ATTEMPTS):
        context = MavenContext(
            repo_cache=scratch / str(attempt),
            remote_repos=GlobalSettings.load().repositories or None,
            timeout=DOWNLOAD_TIMEOUT_S,
        )
        try:
            path = context.project(jar.group, jar.artifact).at_version(jar.version).artifact().resolve()
        except (requests.RequestException, RuntimeError) as error:
            failure = error
            continue
        if _is_good(path, jar):
            shutil.move(path, folder / jar.file_name)
            return
        failure = BrokerError(f"its SHA-256 is {_sha256(path)}, the lock file says {jar.sha256}")
    raise BrokerError(
        f"{jar.file_name} of Kafka {KAFKA_VERSION} could not be fetched: {failure}.",
        next_step="Kafka is fetched once, from the Maven repository: check the network (HTTPS_PROXY and a mirror in "
        "jgo's settings are honoured) and try again. Or name a cluster with LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS.",
    ) from failure


def _is_good(path: Path, jar: Jar) -> bool:
    try:
        return _sha256(path) == jar.sha256
    except FileNotFoundError:
        return False


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
