"""Resolve Kafka and its logging again and write ``kafka.lock.toml``: ``python -m lightstream.broker.write_lock``.

To move to another Kafka version, change ``KAFKA_VERSION``, run this, read the difference, and commit both. Nothing else
writes the lock file.
"""

from __future__ import annotations

from jgo.env import LockFile
from jgo.maven import Dependency, MavenContext

from .jars import KAFKA_VERSION, LOCK_FILE

KAFKA = ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION)
LOGGING = ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4")
"""Without an SLF4J binding the broker logs nothing. Same version as the ``log4j-core`` that Kafka depends on."""


def main() -> None:
    """Download the jars that ``KAFKA`` and ``LOGGING`` need, and record name, version and SHA-256 of each."""
    context = MavenContext()
    kafka, logging = (
        # `raw` keeps the logging's parent from deciding the versions of Kafka's own dependencies.
        Dependency(context.project(group, artifact).at_version(version).artifact(), raw=raw)
        for (group, artifact, version), raw in ((KAFKA, False), (LOGGING, True))
    )
    inputs, transitive = context.resolver.resolve([kafka, logging])
    runtime = [dependency for dependency in transitive if dependency.scope in ("compile", "runtime")]
    dependencies = sorted([*inputs, *runtime], key=lambda d: (d.groupId, d.artifactId))
    LockFile.from_resolved_dependencies(dependencies, environment_name="kafka").save(LOCK_FILE)


if __name__ == "__main__":
    main()
