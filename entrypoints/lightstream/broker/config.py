"""The broker's configuration: one node, small, durable over restarts, quick to start and to notice lost clients."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lightstream.runtime.settings import Settings

__all__ = ["BOOTSTRAP_FILE", "NODE_ID", "BrokerFiles", "heap_mebibytes", "log4j_properties", "server_properties"]

BOOTSTRAP_FILE = "bootstrap.checkpoint"
"""Name of the file, in a folder of records, that tells a new broker which features of Kafka it begins with."""

NODE_ID = 1
MEBIBYTE = 1024 * 1024
HEAP_MEBIBYTES_MIN = 512
HEAP_RECORDS = 8
"""A broker holds a record several times while it is written, read and compacted."""

REQUEST_OVERHEAD_BYTES = MEBIBYTE
REQUEST_BYTES_MIN = 104_857_600
"""Kafka's own default of ``socket.request.max.bytes``."""

TEN_YEARS_MINUTES = 10 * 365 * 24 * 60


@dataclass(frozen=True, slots=True)
class BrokerFiles:
    """Paths of the broker's files.

    Attributes:
        folder: everything of the broker; wiping it loses all records.
        log_folder: text logs.
    """

    folder: Path
    log_folder: Path

    @classmethod
    def of(cls, settings: Settings) -> BrokerFiles:
        data_dir = settings.data_dir.absolute()
        return cls(data_dir / "broker", data_dir / "logs")

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
        return self.log_folder / "broker.log"

    @property
    def output(self) -> Path:
        """Standard output and error of the Java process."""
        return self.log_folder / "broker.out"


def heap_mebibytes(settings: Settings) -> int:
    """Size of the Java heap."""
    return max(HEAP_MEBIBYTES_MIN, HEAP_RECORDS * settings.record_bytes_max // MEBIBYTE)


def server_properties(settings: Settings, files: BrokerFiles, port: int, controller_port: int) -> str:
    """The text of ``server.properties``.

    Source: the broker, topic and group settings of Kafka 4.3's reference. Defaults are left out unless they matter.
    """
    request_bytes = max(REQUEST_BYTES_MIN, settings.record_bytes_max + REQUEST_OVERHEAD_BYTES)
    values: dict[str, object] = {
        # one node that is both broker and controller
        "process.roles": "broker,controller",
        "node.id": NODE_ID,
        "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": files.records.as_posix(),
        # internal topics: one copy; few partitions, because each costs open files and start-up time
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 2,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
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
