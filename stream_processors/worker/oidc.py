"""Tokens for aiokafka's login by OAUTHBEARER, which librdkafka's clients get by themselves."""

from __future__ import annotations

import asyncio
import base64
import ssl
import time
import urllib.parse
from typing import Any

from aiokafka.abc import AbstractTokenProvider  # type: ignore[import-untyped]  # it has no types

from lightstream.runtime.http.client import send
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError, SettingsError

REQUEST_TIMEOUT_S = 10.0
RENEWED_AT_SHARE = 0.8
"""Of a token's life, after which the next connection asks for another."""


class ClientCredentials(AbstractTokenProvider):  # type: ignore[misc]  # as above
    """Asks the OIDC provider for a token by the client credentials grant (RFC 6749, section 4.4).

    Raises:
        SettingsError: the URL, the client's id or its secret is not set.
    """

    def __init__(self, settings: Settings) -> None:
        url, client, secret = settings.kafka_oidc_url, settings.kafka_sasl_username, settings.kafka_sasl_password
        if url is None or client is None or secret is None or not url.startswith(("http://", "https://")):
            raise SettingsError(
                "LIGHTSTREAM_KAFKA_SASL_MECHANISM is OAUTHBEARER, which needs an http(s) URL, a client and its secret.",
                next_step="Set LIGHTSTREAM_KAFKA_OIDC_URL, LIGHTSTREAM_KAFKA_SASL_USERNAME and "
                "LIGHTSTREAM_KAFKA_SASL_PASSWORD.",
            )
        fields = {"grant_type": "client_credentials"}
        if settings.kafka_oidc_scope is not None:
            fields["scope"] = settings.kafka_oidc_scope
        login = ":".join(urllib.parse.quote(text, safe="") for text in (client, secret.get_secret_value()))
        self._url = url
        self._content = urllib.parse.urlencode(fields).encode()
        self._headers = {
            "authorization": f"Basic {base64.b64encode(login.encode()).decode()}",
            "content-type": "application/x-www-form-urlencoded",
        }
        self._certificates = ssl.create_default_context()
        self._token = ""
        self._renew_s = 0.0
        self._asking = asyncio.Lock()

    async def token(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]  # its body is empty
        """Return a token that is valid for a while.

        Raises:
            OSError: the provider does not answer, or refuses.
            ValueError, KeyError: its answer has no token.
        """
        async with self._asking:
            if time.monotonic() >= self._renew_s:
                asked_s = time.monotonic()
                answer = await asyncio.to_thread(self._ask)
                self._token = str(answer["access_token"])
                self._renew_s = asked_s + RENEWED_AT_SHARE * float(answer.get("expires_in", 0))
            return self._token

    def _ask(self) -> dict[str, Any]:
        try:
            answer = send(
                "POST",
                self._url,
                server=f"the OIDC provider at {self._url}",
                next_step="Correct LIGHTSTREAM_KAFKA_OIDC_URL.",
                timeout_s=REQUEST_TIMEOUT_S,
                certificates=self._certificates,
                headers=self._headers,
                content=self._content,
            )
        except ServiceUnavailableError as error:
            raise OSError(error.message) from error  # which aiokafka takes for a lost connection
        if answer.is_error:
            raise OSError(f"the OIDC provider at {self._url} answers {answer.status_code}: {answer.text[:300]}")
        token: dict[str, Any] = answer.json()
        return token
