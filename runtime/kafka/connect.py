"""The first request to a cluster. A cluster that does not let this client in is told from one that is away."""

from __future__ import annotations

import time

from confluent_kafka import KafkaError, KafkaException

# Public names that the package's __all__ lacks.
from confluent_kafka.admin import AdminClient  # isort: skip
from confluent_kafka.admin import ClusterMetadata  # type: ignore[attr-defined]  # pyright: ignore[reportPrivateImportUsage]  # isort: skip

from lightstream.schemas.errors import AccessRefusedError

from ..settings import Settings
from .config import common_config
from .read_errors import REFUSALS
from .unavailable import kafka_unavailable

CONNECT_TIMEOUT_S = 30.0
ASK_S = 1.0
"""For one request. The reason for which no connection is made comes beside it, and is looked at after it."""

LOG_NOTHING = 0
"""What goes wrong with connections is raised here, once."""

NOT_LET_IN = REFUSALS | {KafkaError._SSL}
NO_ANSWER = frozenset({KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN})


def connected(settings: Settings, *, timeout_s: float = CONNECT_TIMEOUT_S) -> tuple[AdminClient, ClusterMetadata]:
    """Return a client of the cluster, and its topics. Blocks.

    Raises:
        AccessRefusedError: the cluster refuses the credentials, the mechanism or the certificate; has its reason.
        ServiceUnavailableError: it does not answer within ``timeout_s`` seconds; has the last reason there was.
    """
    reported: list[KafkaError] = []
    config = common_config(settings)
    config |= {"error_cb": reported.append, "log_level": LOG_NOTHING}
    admin = AdminClient(config)
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            return admin, admin.list_topics(timeout=min(ASK_S, timeout_s))
        except KafkaException as error:
            admin.poll(0)
            refusals = [one for one in reported if one.code() in NOT_LET_IN]
            if refusals:
                raise AccessRefusedError(
                    f"Kafka does not let this client in: {refusals[0].str()}.",
                    next_step="Correct LIGHTSTREAM_KAFKA_SECURITY_PROTOCOL and the settings beside it.",
                ) from error
            if error.args[0].code() in NO_ANSWER and time.monotonic() < deadline_s:
                continue
            reasons = [one.str() for one in reported if one.code() != KafkaError._ALL_BROKERS_DOWN]
            raise kafka_unavailable(reasons[-1] if reasons else error) from error
