"""Libraries that need an environment of their own: `make test-environments` runs these, and only there they import."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

collect_ignore_glob = [] if find_spec("verifiers") and find_spec("openenv") else ["test_*.py"]

sys.path.insert(0, str(Path(__file__).parent))  # verifiers finds the task set by its module's name
