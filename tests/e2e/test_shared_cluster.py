"""A cluster of a company: users log in, and may only touch what begins with their team's prefix."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import admin as kafka_admin

from lightstream.runtime.settings import Settings
from lightstream.trainers import ViewClient, make_tiny_model
from lightstream.up import Stack
from tests.support.acl_broker import wait_for_rules
from tests.support.forked import Forked
from tests.support.oidc_provider import CLIENT, SECRET, oidc_provider
from tests.support.sasl_broker import PASSWORD, USER, LoginBroker, login_broker

ADMIN: Any = kafka_admin  # these names are public, but not in its __all__
ROOT = Path(__file__).parents[2]
PREFIX = "team-a."
TIMEOUT_S = 1200.0

PROGRAM = """
import sys
from openai import AsyncOpenAI
from lightstream.producers import rollout
from lightstream.trainers import VERL, Trainer

@rollout
async def short(task, llm):
    async with AsyncOpenAI(base_url=llm.endpoint, api_key=llm.api_key or "none", max_retries=0) as client:
        completion = await client.chat.completions.create(
            model=llm.model, messages=[{"role": "user", "content": task}], **llm.sampling_parameters
        )
    return sum(ord(character) % 2 == 0 for character in completion.choices[0].message.content or "") / 6

algorithm = VERL(model=sys.argv[1], steps=2, tasks_per_step=2, rollouts_per_task=4, threads=1,
                 sampling_parameters={"max_tokens": 4})
Trainer(algorithm=algorithm, trainer_id="shared", progress=False, n_runners=1).fit(short, ["one", "two"])
"""


def allow(broker: LoginBroker, user: str) -> None:
    """Grant what the page on operations lists: everything under the prefix, of three kinds of resources."""
    admin = broker.admin()
    kinds = ADMIN.ResourceType
    rules = [
        ADMIN.AclBinding(
            kind,
            PREFIX,
            ADMIN.ResourcePatternType.PREFIXED,
            user,
            "*",
            ADMIN.AclOperation.ALL,
            ADMIN.AclPermissionType.ALLOW,
        )
        for kind in (kinds.TOPIC, kinds.GROUP, kinds.TRANSACTIONAL_ID)
    ]
    for future in admin.create_acls(rules, request_timeout=300).values():
        future.result()
    wait_for_rules(admin, PREFIX, len(rules))


@pytest.mark.parametrize("login", ["password", "token", pytest.param("certificate", marks=pytest.mark.soak)])
def test_a_training_needs_no_more_than_its_prefix(tmp_path: Path, login: str) -> None:
    make_tiny_model(tmp_path / "model", seed=0)
    with oidc_provider() as provider, login_broker(tmp_path, provider) as broker:
        own: dict[str, Any]
        if login == "token":
            allow(broker, f"User:{CLIENT}")
            own = {
                "kafka_bootstrap_servers": broker.oidc,
                "kafka_security_protocol": "SASL_PLAINTEXT",
                "kafka_sasl_mechanism": "OAUTHBEARER",
                "kafka_sasl_username": CLIENT,
                "kafka_sasl_password": SECRET,
                "kafka_oidc_url": provider.token_url,
            }
        elif login == "password":
            allow(broker, f"User:{USER}")
            own = {
                "kafka_bootstrap_servers": broker.sasl,
                "kafka_security_protocol": "SASL_PLAINTEXT",
                "kafka_sasl_mechanism": "SCRAM-SHA-512",
                "kafka_sasl_username": USER,
                "kafka_sasl_password": PASSWORD,
            }
        else:
            allow(broker, f"User:CN={USER}")
            own = {
                "kafka_bootstrap_servers": broker.ssl,
                "kafka_security_protocol": "SSL",
                "kafka_ssl_ca_file": broker.ca,
                "kafka_ssl_certificate_file": broker.certificate,
                "kafka_ssl_key_file": broker.key,
            }
        settings = Settings.load(data_dir=tmp_path / "run", topic_prefix=PREFIX, **own)
        with Stack(settings, services=("worker", "view", "policy", "proxy", "gateway")) as stack:
            environment = os.environ | stack.settings.to_environment()
            with Forked(["-c", PROGRAM, str(tmp_path / "model")], environment, ROOT) as program:
                _, output = program.communicate(TIMEOUT_S)
                assert program.returncode == 0, output
            view = ViewClient(stack.settings, patience_s=120.0)
            made = view.query("SELECT count(*) FROM training_steps WHERE run_id = 'shared'", at_least="now").scalar()
            view.close()
            assert made == 2
