"""``agentlightning.utils.id``: random ids."""

from __future__ import annotations

import secrets

__all__ = ["generate_id"]


def generate_id(length: int) -> str:
    """That many random hexadecimal digits, at most 40."""
    return secrets.token_hex(20)[:length]
