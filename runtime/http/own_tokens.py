"""Tokens of our own processes, and the secret of a data folder from which they follow.

With a file of tokens, every server asks for a token, and our own processes have none in it. They share a data folder,
so each server takes one token more: HMAC-SHA256 (RFC 2104) of the server's name, by a secret in a file of mode 0600.
Nobody has to set it, and the token of one server opens no other.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import SecretStr

from lightstream.schemas.errors import SettingsError

from ..settings import Settings

TokenSetting = Literal["proxy_token", "store_token", "view_token", "policy_token"]

SECRET_FILE = "attempt-keys"
SECRET_BYTES = 32


def token_of(settings: Settings, setting: TokenSetting) -> str | None:
    """The token that a server takes beside the file's tokens, and that our clients send to it. Blocks for a file.

    Returns:
        That of the setting; else, with a file of tokens, the data folder's; else ``None``.
    """
    named: SecretStr | None = getattr(settings, setting)
    if named is not None:
        return named.get_secret_value()
    if settings.tokens_file is None:
        return None
    return hmac.digest(folder_secret(settings), setting.encode(), hashlib.sha256).hex()


def folder_secret(settings: Settings) -> bytes:
    """The secret of the data folder; makes it if there is none. Blocks for a file.

    Raises:
        SettingsError: its file is damaged.
    """
    path = settings.data_dir / SECRET_FILE
    with suppress(FileNotFoundError):
        return _read(path)
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=settings.data_dir, prefix=f".{SECRET_FILE}")  # 0600
    with os.fdopen(handle, "wb") as file:
        file.write(secrets.token_bytes(SECRET_BYTES))
        file.flush()
        os.fsync(file.fileno())
    with suppress(FileExistsError):
        os.link(temporary, path)  # of several processes the first one's counts
    Path(temporary).unlink()
    return _read(path)


def _read(path: Path) -> bytes:
    secret = path.read_bytes()
    if len(secret) != SECRET_BYTES:
        raise SettingsError(
            f"{path} has {len(secret)} bytes in place of {SECRET_BYTES}.",
            next_step="Remove it, and start all processes of this data folder again.",
        )
    return secret
