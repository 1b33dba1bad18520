"""Frameworks that need an environment of their own: `make test-frameworks` runs them, and only there they import."""

from __future__ import annotations

import os

collect_ignore_glob = [] if "LIGHTSTREAM_TEST_PYTHON" in os.environ else ["test_*.py"]
