"""API keys that are good for one attempt: its calls through the LLM proxy, and its reward.

A key is ``lsa-`` and the HMAC-SHA256 (RFC 2104) of rollout and attempt, so nobody has to store it. The secret is
``LIGHTSTREAM_PROXY_TOKEN``. Without one it is the secret of the data folder, which Runners and proxy of one machine
share.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

from ..settings import Settings
from .own_tokens import folder_secret

KEY_PREFIX = "lsa-"


def attempt_secret(settings: Settings) -> bytes:
    """The secret of this data folder's keys; makes it if there is none. Blocks for a file."""
    if settings.proxy_token is not None:
        return settings.proxy_token.get_secret_value().encode()
    return folder_secret(settings)


def attempt_key(secret: bytes, rollout_id: str, attempt_id: str) -> str:
    """The key of one attempt."""
    digest = hmac.digest(secret, f"{rollout_id}\0{attempt_id}".encode("utf-8", "surrogatepass"), hashlib.sha256)
    return KEY_PREFIX + base64.urlsafe_b64encode(digest).decode("ascii").rstrip("=")


def is_attempt_key(text: str) -> bool:
    """Whether it has the form of such a key."""
    return text.startswith(KEY_PREFIX)


def is_key_of(text: str, secret: bytes, rollout_id: str, attempt_id: str) -> bool:
    """Whether it is the key of that attempt; takes the same time whatever is wrong with it."""
    expected = attempt_key(secret, rollout_id, attempt_id)
    return hmac.compare_digest(text.encode("utf-8", "replace"), expected.encode())
