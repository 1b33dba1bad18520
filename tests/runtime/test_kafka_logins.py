"""A cluster that asks for a password or a certificate: the right ones work, the wrong ones are named at once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs

import pytest

from lightstream.runtime.kafka import connected
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import AccessRefusedError, ServiceUnavailableError, SettingsError
from lightstream.stream_processors.worker.oidc import ClientCredentials
from tests.support.oidc_provider import CLIENT, SECRET, OidcProvider, oidc_provider
from tests.support.sasl_broker import PASSWORD, USER, LoginBroker, login_broker

ENOUGH_S = 60.0
"""For a cluster that does not answer; a refusal does not take that long."""

SCRAM = {
    "kafka_security_protocol": "SASL_PLAINTEXT",
    "kafka_sasl_mechanism": "SCRAM-SHA-512",
    "kafka_sasl_username": USER,
    "kafka_sasl_password": PASSWORD,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginBroker]:
    with login_broker(tmp_path_factory.mktemp("login")) as broker:
        yield broker


def settings_of(broker: LoginBroker, **values: Any) -> Settings:
    return Settings.load(kafka_bootstrap_servers=broker.sasl, **values)


def with_certificate(broker: LoginBroker, **values: Any) -> Settings:
    own: dict[str, Any] = {
        "kafka_bootstrap_servers": broker.ssl,
        "kafka_security_protocol": "SSL",
        "kafka_ssl_ca_file": broker.ca,
        "kafka_ssl_certificate_file": broker.certificate,
        "kafka_ssl_key_file": broker.key,
    }
    return Settings.load(**own | values)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_the_right_password_is_let_in(broker: LoginBroker, mechanism: str) -> None:
    connected(settings_of(broker, **SCRAM | {"kafka_sasl_mechanism": mechanism}), timeout_s=ENOUGH_S)


def test_the_right_certificate_is_let_in(broker: LoginBroker) -> None:
    connected(with_certificate(broker), timeout_s=ENOUGH_S)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"kafka_sasl_password": "another"}, "invalid credentials"),
        ({"kafka_sasl_username": "bob"}, "invalid credentials"),
        ({"kafka_sasl_mechanism": "SCRAM-SHA-256"}, r"supported mechanisms: PLAIN,SCRAM-SHA-512"),
    ],
)
def test_a_wrong_login_is_refused_with_the_brokers_reason(
    broker: LoginBroker, wrong: dict[str, str], reason: str
) -> None:
    with pytest.raises(AccessRefusedError, match=reason) as refused:
        connected(settings_of(broker, **SCRAM | wrong))
    assert "LIGHTSTREAM_KAFKA_SECURITY_PROTOCOL" in refused.value.next_step


def test_a_broker_of_another_authority_is_refused(broker: LoginBroker) -> None:
    with pytest.raises(AccessRefusedError, match="certificate could not be verified"):
        connected(with_certificate(broker, kafka_ssl_ca_file=broker.certificate))


def test_a_missing_certificate_and_a_wrong_protocol_are_named(broker: LoginBroker) -> None:
    without = with_certificate(broker, kafka_ssl_certificate_file=None, kafka_ssl_key_file=None)
    with pytest.raises(ServiceUnavailableError, match="certificate required"):
        connected(without, timeout_s=10)
    with pytest.raises(ServiceUnavailableError, match=r"PLAINTEXT broker listener|SSL connection closed by peer"):
        connected(with_certificate(broker, kafka_bootstrap_servers=broker.open), timeout_s=10)
    with pytest.raises(ServiceUnavailableError) as silent:
        connected(settings_of(broker), timeout_s=10)
    assert "LIGHTSTREAM_KAFKA_SECURITY_PROTOCOL must say so" in silent.value.next_step


class _Tokens(BaseHTTPRequestHandler):
    """Gives a token with a number for the right client, for ``expires_in`` seconds."""

    asked: ClassVar[list[dict[str, list[str]]]] = []
    expires_in = 3600

    def do_POST(self) -> None:
        body = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
        is_right = self.headers["authorization"] == "Basic YWxpY2U6YWxpY2UlMjdzJTIwcGFzc3dvcmQ="
        self.asked.append(body)
        answer = {"access_token": f"token {len(self.asked)}", "expires_in": self.expires_in}
        self.send_response(200 if is_right else 401)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base's name
        """Nothing."""


@pytest.fixture
def token_url() -> Iterator[str]:
    _Tokens.asked.clear()
    _Tokens.expires_in = 3600
    with HTTPServer(("127.0.0.1", 0), _Tokens) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/token"
        server.shutdown()
        thread.join()


async def test_a_token_is_asked_for_once_and_again_before_it_ends(token_url: str) -> None:
    oidc = {"kafka_sasl_mechanism": "OAUTHBEARER", "kafka_oidc_url": token_url, "kafka_oidc_scope": "kafka"}
    tokens = ClientCredentials(Settings.load(**SCRAM | oidc))
    assert [await tokens.token() for _ in range(3)] == ["token 1"] * 3
    assert _Tokens.asked == [{"grant_type": ["client_credentials"], "scope": ["kafka"]}]
    _Tokens.expires_in = 0
    short = ClientCredentials(Settings.load(**SCRAM | oidc))
    assert [await short.token() for _ in range(2)] == ["token 2", "token 3"]
    wrong = ClientCredentials(Settings.load(**SCRAM | oidc | {"kafka_sasl_password": "another"}))
    with pytest.raises(OSError, match="401"):
        await wrong.token()


def test_a_login_by_token_needs_its_settings(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="OAUTHBEARER"):
        ClientCredentials(Settings.load(data_dir=tmp_path, kafka_sasl_mechanism="OAUTHBEARER"))


# --- tokens of an OIDC provider, which a real broker checks


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcProvider]:
    with oidc_provider() as provider:
        yield provider


@pytest.fixture(scope="module")
def oidc_settings(provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    with login_broker(tmp_path_factory.mktemp("oidc"), provider) as broker:
        yield Settings.load(
            kafka_bootstrap_servers=broker.oidc,
            kafka_security_protocol="SASL_PLAINTEXT",
            kafka_sasl_mechanism="OAUTHBEARER",
            kafka_sasl_username=CLIENT,
            kafka_sasl_password=SECRET,
            kafka_oidc_url=provider.token_url,
        )


def test_a_token_of_the_provider_is_let_in(oidc_settings: Settings, provider: OidcProvider) -> None:
    asked_count = provider.asked_count
    connected(oidc_settings, timeout_s=ENOUGH_S)
    assert provider.asked_count > asked_count


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("key", "invalid_token"),
        ("audience", "invalid_token"),
        ("issuer", "invalid_token"),
        ("expired", "unexpired token"),
    ],
)
def test_a_token_that_the_broker_does_not_take_is_refused_with_its_reason(
    oidc_settings: Settings, provider: OidcProvider, monkeypatch: pytest.MonkeyPatch, wrong: str, reason: str
) -> None:
    """One that has expired is not even sent: librdkafka says so."""
    hour_s = 3600
    claims: dict[str, dict[str, Any]] = {
        "audience": {"aud": "another"},
        "issuer": {"iss": "http://another"},
        "expired": {"iat": int(time.time()) - 2 * hour_s, "exp": int(time.time()) - hour_s},
    }
    monkeypatch.setattr(provider, "claims", claims.get(wrong, {}))
    monkeypatch.setattr(provider, "knows_key", wrong != "key")
    with pytest.raises(AccessRefusedError, match=reason):
        connected(oidc_settings, timeout_s=ENOUGH_S)


def test_a_wrong_secret_is_refused_with_the_providers_reason(oidc_settings: Settings) -> None:
    wrong = Settings.load(**oidc_settings.model_dump() | {"kafka_sasl_password": "another"})
    with pytest.raises(AccessRefusedError, match="the secret is wrong"):
        connected(wrong, timeout_s=ENOUGH_S)
