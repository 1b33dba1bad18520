"""A broker that also listens where users log in, with a password (PLAIN, SCRAM) or a certificate (mutual TLS)."""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import admin as kafka_admin
from confluent_kafka.admin import AdminClient

from lightstream.broker import EmbeddedBroker, embedded
from lightstream.broker.config import server_properties
from lightstream.runtime.kafka import common_config, connected
from lightstream.runtime.ports import free_port
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import AccessRefusedError
from tests.support.oidc_provider import AUDIENCE, OidcProvider
from tests.support.waiting import eventually

ADMIN: Any = kafka_admin  # these names are public, but not in its __all__
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer"
LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USER, PASSWORD = "alice", "alice's password"
TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class LoginBroker:
    """Addresses of one broker.

    Attributes:
        open: where nobody logs in, as the broker's administrator.
        sasl: where a password is asked for, without TLS.
        ssl: where a certificate of ``ca`` is asked for.
        oidc: where a token of the provider is asked for, if there is one, without TLS.
        ca, certificate, key: PEM files; the certificate is the client's.
    """

    open: str
    sasl: str
    ssl: str
    oidc: str
    ca: Path
    certificate: Path
    key: Path

    def admin(self) -> AdminClient:
        """A client of the administrator."""
        return AdminClient(common_config(Settings.load(kafka_bootstrap_servers=self.open)))


@contextmanager
def login_broker(folder: Path, provider: OidcProvider | None = None) -> Generator[LoginBroker]:
    """Our embedded broker with more listeners, and Kafka's own authorizer, which lets ``USER`` do nothing yet.

    Args:
        provider: whose tokens the broker takes, at a listener of their own.
    """
    ca, certificate, key = _certificates(folder)
    ports: list[int] = []
    for _ in range(3):
        ports.append(free_port(ports))
    sasl, ssl, oidc = (f"127.0.0.1:{port}" for port in ports)

    def with_logins(settings: Settings, files: Any, port: int, controller_port: int) -> str:
        listeners = {"PLAINTEXT": f"127.0.0.1:{port}", "SASL_PLAINTEXT": sasl, "SSL": ssl}
        protocols = {name: name for name in listeners}
        if provider is not None:
            listeners["OIDC"], protocols["OIDC"] = oidc, "SASL_PLAINTEXT"
        places = ",".join(f"{name}://{address}" for name, address in listeners.items())
        own = {
            "listeners": f"{places},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": places,
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items())
            + ",CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                f'{LOGIN_MODULE} required user_{USER}="{PASSWORD}";'
            ),
            "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": (folder / "broker.pem").as_posix(),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": ca.as_posix(),
            "offsets.retention.minutes": "1440",
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:ANONYMOUS",
        }
        if provider is not None:
            own |= {
                "listener.name.oidc.sasl.enabled.mechanisms": "OAUTHBEARER",
                "listener.name.oidc.oauthbearer.sasl.jaas.config": f"{OAUTHBEARER}.OAuthBearerLoginModule required;",
                "listener.name.oidc.oauthbearer.sasl.server.callback.handler.class": (
                    f"{OAUTHBEARER}.OAuthBearerValidatorCallbackHandler"
                ),
                "listener.name.oidc.sasl.oauthbearer.jwks.endpoint.url": provider.keys_url,
                "listener.name.oidc.sasl.oauthbearer.expected.issuer": provider.issuer,
                "listener.name.oidc.sasl.oauthbearer.expected.audience": AUDIENCE,
            }
        return server_properties(settings, files, port, controller_port) + "".join(
            f"{name}={value}\n" for name, value in own.items()
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "server_properties", with_logins)
        # Kafka fetches keys from no address that this does not name (since 4.0, against SSRF).
        allowed = [] if provider is None else [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.keys_url}"]
        with EmbeddedBroker(Settings.load(data_dir=folder / "data"), java_options=allowed) as broker:
            login = LoginBroker(broker.start(), sasl, ssl, oidc, ca, certificate, key)
            mechanism = ADMIN.ScramCredentialInfo(ADMIN.ScramMechanism.SCRAM_SHA_512, 4096)
            change = ADMIN.UserScramCredentialUpsertion(USER, mechanism, PASSWORD.encode())
            admin = login.admin()  # has to live until it has the answer
            for future in admin.alter_user_scram_credentials([change], request_timeout=TIMEOUT_S).values():
                future.result()
            eventually(partial(_lets_in, sasl), what=f"the broker knows {USER}")
            yield login


def _lets_in(sasl: str) -> bool:
    """Whether ``USER`` may log in by SCRAM by now: the broker learns of a password after it has written it."""
    settings = Settings.load(
        kafka_bootstrap_servers=sasl,
        kafka_security_protocol="SASL_PLAINTEXT",
        kafka_sasl_mechanism="SCRAM-SHA-512",
        kafka_sasl_username=USER,
        kafka_sasl_password=PASSWORD,
    )
    try:
        connected(settings, timeout_s=TIMEOUT_S)
    except AccessRefusedError:
        return False
    return True


def _certificates(folder: Path) -> tuple[Path, Path, Path]:
    """Make a CA, the broker's key and certificate in one file, and a client's certificate and key."""

    def openssl(arguments: str) -> None:
        subprocess.run(["openssl", *arguments.split()], cwd=folder, check=True, capture_output=True)

    new = "req -newkey rsa:2048 -nodes"
    (folder / "names.txt").write_text("subjectAltName=IP:127.0.0.1\n")
    openssl(f"{new} -x509 -days 2 -subj /CN=ca -keyout ca.key -out ca.pem")
    for name in ("broker", USER):
        openssl(f"{new} -subj /CN={name} -keyout {name}.key -out {name}.csr")
        signer = "-CA ca.pem -CAkey ca.key -CAcreateserial -extfile names.txt"
        openssl(f"x509 -req -days 2 -in {name}.csr {signer} -out {name}.crt")
    (folder / "broker.pem").write_text((folder / "broker.key").read_text() + (folder / "broker.crt").read_text())
    return folder / "ca.pem", folder / f"{USER}.crt", folder / f"{USER}.key"
