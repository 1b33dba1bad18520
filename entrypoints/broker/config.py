"""The brokers' configuration: small, durable over restarts, quick to start and to notice lost clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lightstream.runtime.settings import Settings

BOOTSTRAP_FILE = "bootstrap.checkpoint"
"""Name of the file, in a folder of records, that tells a new broker which features of Kafka it begins with."""

COPIES_THAT_ACKNOWLEDGE = 2
"""Of three, before a record counts as written: one broker may be away."""
MEBIBYTE = 1024 * 1024
HEAP_MEBIBYTES_MIN = 512
HEAP_RECORDS = 8
"""A broker holds a record several times while it is written, read and compacted."""

REQUEST_OVERHEAD_BYTES = MEBIBYTE
REQUEST_BYTES_MIN = 104_857_600
"""Kafka's own default of ``socket.request.max.bytes``."""

TEN_YEARS_MINUTES = 10 * 365 * 24 * 60


def broker_name(node: int) -> str:
    """The name that a broker has as a service, and its folder: ``broker``, ``broker-2``, …"""
    return "broker" if node == 1 else f"broker-{node}"


@dataclass(frozen=True, slots=True)
class BrokerFiles:
    """Paths of the broker's files.

    Attributes:
        folder: everything of the broker; wiping it loses all records.
        log_folder: text logs.
        node: the broker's number, from 1.
    """

    folder: Path
    log_folder: Path
    node: int = 1

    @classmethod
    def of(cls, settings: Settings, node: int = 1) -> BrokerFiles:
        data_dir = settings.data_dir.absolute()
        return cls(data_dir / broker_name(node), data_dir / "logs", node)

    @property
    def records(self) -> Path:
        return self.folder / "records"

    @property
    def properties(self) -> Path:
        return self.folder / "server.properties"

    @property
    def log4j(self) -> Path:
        return self.folder / "log4j2.properties"

    @property
    def port(self) -> Path:
        """The port of the last start."""
        return self.folder / "port"

    @property
    def pid(self) -> Path:
        """The process of the last start, ready or not."""
        return self.folder / "pid"

    @property
    def lock(self) -> Path:
        return self.folder / "start.lock"

    @property
    def log(self) -> Path:
        return self.log_folder / f"{broker_name(self.node)}.log"

    @property
    def output(self) -> Path:
        """Standard output and error of the Java process."""
        return self.log_folder / f"{broker_name(self.node)}.out"


def heap_mebibytes(settings: Settings) -> int:
    """Size of the Java heap."""
    return max(HEAP_MEBIBYTES_MIN, HEAP_RECORDS * settings.record_bytes_max // MEBIBYTE)


def server_properties(
    settings: Settings, files: BrokerFiles, port: int, controller_port: int, voters: Sequence[int] = ()
) -> str:
    """The text of ``server.properties``.

    Source: the broker, topic and group settings of Kafka 4.3's reference. Defaults are left out unless they matter.

    Args:
        voters: controllers' ports of all brokers, where there are several.
    """
    copies = max(1, len(voters))
    in_sync = min(copies, COPIES_THAT_ACKNOWLEDGE)
    request_bytes = max(REQUEST_BYTES_MIN, settings.record_bytes_max + REQUEST_OVERHEAD_BYTES)
    values: dict[str, object] = {
        # each node is both broker and controller
        "process.roles": "broker,controller",
        "node.id": files.node,
        "controller.quorum.voters": ",".join(
            f"{node}@127.0.0.1:{voter}" for node, voter in enumerate(voters or (controller_port,), 1)
        ),
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": files.records.as_posix(),
        # internal topics: a copy on each broker; few partitions, because each costs open files and start-up time
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": 2,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": 1,
        # topics are declared in code; a misspelt name must fail, not create one
        "auto.create.topics.enable": "false",
        # a project that rests for months goes on where it was
        "offsets.retention.minutes": TEN_YEARS_MINUTES,
        # large records
        "message.max.bytes": settings.record_bytes_max,
        "replica.fetch.max.bytes": settings.record_bytes_max,
        "socket.request.max.bytes": request_bytes,
        # consumers join at once, and a killed one is noticed within seconds (both group protocols)
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1000,
        "group.consumer.min.session.timeout.ms": 1000,
        "group.consumer.session.timeout.ms": 6000,
        "group.consumer.min.heartbeat.interval.ms": 500,
        "group.consumer.heartbeat.interval.ms": 1000,
        # after kill -9 the restarted broker is refused until its former session ends (default 9 s)
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
        # an aborted writer blocks read_committed readers only this long more
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
        # small footprint; with 2 and 4 threads a request beside 1,000 spans a second waited for more hand-overs (a
        # trajectory came after 25 ms instead of 21, on two cores)
        "num.network.threads": 1,
        "num.io.threads": 2,
        "background.threads": 2,
        "group.coordinator.threads": 1,
        "share.coordinator.threads": 1,
        "log.segment.bytes": 256 * MEBIBYTE,
        "log.cleaner.dedupe.buffer.size": 16 * MEBIBYTE,
    }
    if voters:
        values["min.insync.replicas"] = in_sync
    return "".join(f"{key}={value}\n" for key, value in values.items())


def log4j_properties(files: BrokerFiles) -> str:
    """Log4j 2 settings: one rolling file of at most 4 x 10 MB, warnings and Kafka's own information."""
    return f"""\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {files.log.as_posix()}
appender.file.filePattern = {files.log.as_posix()}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %p %m (%c)%n%throwable
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
logger.kafka.name = kafka
logger.kafka.level = info
logger.apache.name = org.apache.kafka
logger.apache.level = warn
"""
