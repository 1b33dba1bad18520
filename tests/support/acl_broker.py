"""A broker that asks its access control list, which admits everybody to what it does not name."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import admin as kafka_admin
from confluent_kafka.admin import AdminClient

from lightstream.broker import EmbeddedBroker, embedded
from lightstream.broker.config import server_properties
from lightstream.runtime.kafka import common_config
from lightstream.runtime.settings import Settings
from lightstream.schemas.topics import Topic
from tests.support.waiting import eventually

ADMIN: Any = kafka_admin  # these names are public, but not in its __all__
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
TIMEOUT_S = 300.0


@contextmanager
def acl_broker(data_dir: Path) -> Generator[EmbeddedBroker]:
    """Our embedded broker, with Kafka's own authorizer beside the settings it always has."""

    def with_authorizer(*arguments: Any) -> str:
        own = {"authorizer.class.name": AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
        return server_properties(*arguments) + "".join(f"{key}={value}\n" for key, value in own.items())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "server_properties", with_authorizer)
        with EmbeddedBroker(Settings.load(data_dir=data_dir)) as broker:
            yield broker


def forbid_reading(settings: Settings, topic: Topic) -> None:
    """From now on nobody may read the topic; that it is there may be known, and it may be written."""
    _change(settings, topic, "create_acls")


def allow_reading(settings: Settings, topic: Topic) -> None:
    """Take that back."""
    _change(settings, topic, "delete_acls")


def _change(settings: Settings, topic: Topic, how: str) -> None:
    def binding(kind: Any, operation: str, permission: str) -> Any:
        name = topic.full_name(settings.topic_prefix)
        pattern, operations = ADMIN.ResourcePatternType.LITERAL, ADMIN.AclOperation
        permissions, topics = ADMIN.AclPermissionType, ADMIN.ResourceType.TOPIC
        rule = (getattr(operations, operation), getattr(permissions, permission))
        return kind(topics, name, pattern, "User:ANONYMOUS", "*", *rule)

    kind = ADMIN.AclBinding if how == "create_acls" else ADMIN.AclBindingFilter
    rules = [
        binding(kind, operation, permission)
        for operation, permission in (
            ("DESCRIBE", "ALLOW"),
            ("WRITE", "ALLOW"),
            ("DESCRIBE_CONFIGS", "ALLOW"),
            ("READ", "DENY"),
        )
    ]
    admin = AdminClient(common_config(settings))  # has to live until it has the answers
    for future in getattr(admin, how)(rules).values():
        future.result(TIMEOUT_S)
    wait_for_rules(admin, topic.full_name(settings.topic_prefix), len(rules) if how == "create_acls" else 0)


def wait_for_rules(admin: AdminClient, name: str, count: int) -> None:
    """Until the broker goes by so many rules of that name, some moments after it has written them."""
    kinds, patterns = ADMIN.ResourceType, ADMIN.ResourcePatternType
    anything = (ADMIN.AclOperation.ANY, ADMIN.AclPermissionType.ANY)
    wanted = ADMIN.AclBindingFilter(kinds.ANY, name, patterns.ANY, None, None, *anything)

    def found() -> int:
        return len(admin.describe_acls(wanted, request_timeout=TIMEOUT_S).result())

    eventually(lambda: found() == count, what=f"{count} rules of {name!r}")
