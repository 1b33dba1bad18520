"""Certificates of an authority of a test's own, and files that a server has them in."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme

ADDRESS = "127.0.0.1"


class Authority:
    """An authority, its certificate in a file.

    Args:
        folder: for its file.
        name: of that file.
    """

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._ca = trustme.CA()
        self.file = folder / f"{name}.pem"
        self._ca.cert_pem.write_to_path(self.file)

    def put(self, file: Path, *names: str, seconds: float = 3600.0) -> None:
        """Put a certificate and its key into one file, in one step.

        Args:
            names: names or addresses that it is for; this machine's loopback address if there are none.
            seconds: from now, until it expires; negative for one that has.
        """
        end = datetime.now(UTC) + timedelta(seconds=seconds)
        made = self._ca.issue_cert(*(names or (ADDRESS,)), not_before=end - timedelta(days=30), not_after=end)
        new = file.with_suffix(".new")
        made.private_key_and_cert_chain_pem.write_to_path(new)
        os.replace(new, file)

    def key(self, file: Path) -> None:
        """Put a key alone into a file: of no certificate that anybody has."""
        self._ca.issue_cert(ADDRESS).private_key_pem.write_to_path(file)
