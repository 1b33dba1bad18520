"""The distribution that is installed: its name, version and commit, its extras, and how to install them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

DISTRIBUTION = "lightstream-rl"
"""Its name on the package index, where ``lightstream`` is another project. The import and the command stay."""

COMMIT_FILE = Path(__file__).with_name("COMMIT")
"""Written into wheels and sdists when they are built from a checkout; git ignores it."""

CHECKOUT = Path(__file__).parents[3]
GIT_TIMEOUT_S = 10.0
VERL_PYTHON_BELOW = (3, 13)
"""What verl itself asks for; pip leaves verl out of ``[train]`` and ``[all]`` from there on."""


def install_hint(*extras: str) -> str:
    """The command that installs these extras of this distribution, in backticks; part of a sentence.

    It names the place that this installation came from: a checkout's folder, a file, a repository, else the package
    index. Where this Python is too new for verl, which ``train`` needs, it says that too.
    """
    command = f"`pip install {_requirement(','.join(extras))}`"
    if sys.version_info >= VERL_PYTHON_BELOW and "train" in extras:
        return f"{command}, in an environment of Python 3.11 or 3.12 (verl, which trains, takes no newer one)"
    return command


def _requirement(extras: str) -> str:
    """These extras of this distribution as an argument of pip, by PEP 610's note of its origin."""
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    try:
        noted = distribution(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        noted = None
    if not noted:
        return f'"{DISTRIBUTION}[{extras}]"'
    origin = json.loads(noted)
    url = origin["url"]
    if "dir_info" in origin:
        folder = unquote(urlsplit(url).path)
        return f'{"--editable " if origin["dir_info"].get("editable") else ""}"{folder}[{extras}]"'
    if vcs := origin.get("vcs_info"):
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    return f'"{DISTRIBUTION}[{extras}] @ {url}"'


def missing_packages(extras: Iterable[str]) -> list[str]:
    """Names of the packages that these extras need here and that are not installed, sorted.

    Empty as well where this distribution itself is not installed, as in a bundle without metadata.
    """
    from importlib.metadata import PackageNotFoundError, distribution, requires

    def is_missing(name: str) -> bool:
        try:
            distribution(name)
        except PackageNotFoundError:
            return True
        return False

    try:
        requirements = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return []
    required_extras = set(extras)
    names: set[str] = set()
    for requirement in requirements:
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", requirement)
        name = re.match(r"[\w.-]+", requirement)
        if extra is None or name is None or extra[1] not in required_extras or name[0] == DISTRIBUTION:
            continue
        if "python_version <" in requirement and sys.version_info >= VERL_PYTHON_BELOW:
            continue
        names.add(name[0])
    return sorted(name for name in names if is_missing(name))


@cache
def installed_version() -> str:
    """The version that is installed, such as ``0.2.0``; ``unknown`` in a bundle without metadata."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"


def is_under_development(version: str) -> bool:
    """Whether that version is no release yet, such as ``0.3.0.dev0``: its new schemas may still change."""
    return ".dev" in version


def commit() -> str | None:
    """The commit, abbreviated, that this code was built from or is checked out at; ``None`` where nobody knows."""
    if (CHECKOUT / ".git").exists():
        command = ["git", "-C", str(CHECKOUT), "rev-parse", "--short", "HEAD"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=True)
        except (OSError, subprocess.SubprocessError):  # no git, or not our folder
            return None
        return done.stdout.strip()
    return COMMIT_FILE.read_text("utf-8").strip() if COMMIT_FILE.is_file() else None
