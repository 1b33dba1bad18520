"""An OIDC provider of a test's own: its keys (JWKS), and tokens by the client credentials grant."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

AUDIENCE = "kafka"
CLIENT, SECRET = "alice", "alice's secret"


class OidcProvider:
    """Signs tokens that say who the client is.

    Attributes:
        claims: in place of the right ones.
        knows_key: whether tokens are signed by the key that it publishes.
        asked_count: requests for tokens that came.
    """

    def __init__(self, url: str) -> None:
        self.issuer = url
        self.keys_url = f"{url}/keys"
        self.token_url = f"{url}/token"
        self.claims: dict[str, Any] = {}
        self.knows_key = True
        self.asked_count = 0
        self._published = RSAKey.generate_key(2048, {"kid": "published", "use": "sig", "alg": "RS256"})
        self._other = RSAKey.generate_key(2048, {"kid": "published", "use": "sig", "alg": "RS256"})

    def keys(self) -> dict[str, Any]:
        return dict(KeySet([self._published]).as_dict(private=False))

    def token(self) -> dict[str, Any]:
        """The answer to a client, whose token holds for ten minutes unless ``claims`` say otherwise."""
        self.asked_count += 1
        now_s = int(time.time())
        claims: dict[str, Any] = {
            "iss": self.issuer,
            "aud": AUDIENCE,
            "sub": CLIENT,
            "iat": now_s,
            "exp": now_s + 600,
        } | self.claims
        key = self._published if self.knows_key else self._other
        text = jwt.encode({"alg": "RS256", "kid": "published"}, claims, key)
        return {"access_token": text, "token_type": "Bearer", "expires_in": max(1, claims["exp"] - now_s)}


@contextmanager
def oidc_provider() -> Generator[OidcProvider]:
    """One that answers while the block runs."""
    expected = f"{quote(CLIENT, safe='')}:{quote(SECRET, safe='')}"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, provider.keys())

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            sent = base64.b64decode(self.headers.get("authorization", "").removeprefix("Basic ")).decode()
            if sent in (expected, f"{CLIENT}:{SECRET}"):
                self._answer(200, provider.token())
            else:
                self._answer(401, {"error": "invalid_client", "error_description": "the secret is wrong"})

        def _answer(self, status: int, body: dict[str, Any]) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base's name
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider = OidcProvider(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()
