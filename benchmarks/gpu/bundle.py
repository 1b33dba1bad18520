"""Pack what a GPU machine needs that has torch, transformers and no network: ``make gpu-bundle``.

Into ``.gpu-bundle``: wheels, for Python 3.12 on x86-64 Linux, of what ``requirements/gpu-bundle.txt`` lists at the
versions of the lock file; this project's own code; a recording, and what a CPU made of it. Unpacked and run there by
``make gpu-proof``.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from .rollouts import record

BUNDLE = Path(".gpu-bundle")
NAMES = Path("requirements/gpu-bundle.txt")
LOCK = Path("requirements/lock.txt")
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
BYTES_MAX = 64 * 1024 * 1024

UNUSED_OF_RAY = re.compile(
    r"ray/(jars|dashboard/client|rllib|serve|tune|llm|core/src/ray/(gcs/gcs_server|raylet/raylet)|core/libjemalloc)"
)
"""verl imports ray; where no cluster is started, three quarters of it are not needed."""


def main() -> int:
    """Exit status 0 when the bundle is whole and small enough."""
    wheels = BUNDLE / "wheels"
    shutil.rmtree(BUNDLE, ignore_errors=True)
    wheels.mkdir(parents=True)
    locked = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", LOCK.read_text("utf-8"), re.MULTILINE))
    names = [line for line in NAMES.read_text("utf-8").split("\n") if line and not line.startswith("#")]
    pip = [sys.executable, "-m", "pip"]
    quiet = ["--quiet", "--disable-pip-version-check", "--no-deps"]
    platforms = [argument for name in PLATFORMS for argument in ("--platform", name)]
    target = [*quiet, "--only-binary=:all:", "--python-version", "3.12", *platforms, "--dest", str(wheels)]
    pure = [name for name in names if name == "antlr4-python3-runtime"]  # has no wheel
    subprocess.run(
        [*pip, "download", *target, *(f"{name}=={locked[name]}" for name in names if name not in pure)], check=True
    )
    for source in [*(f"{name}=={locked[name]}" for name in pure), "."]:
        subprocess.run([*pip, "wheel", *quiet, "--wheel-dir", str(wheels), source], check=True)
    (ray,) = wheels.glob("ray-*.whl")
    _without(ray, UNUSED_OF_RAY)
    print("Training on a recording, for the figures to compare with ...", flush=True)
    record(BUNDLE)
    shutil.rmtree(BUNDLE / "made-on-cpu")
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
    (BUNDLE / "commit.txt").write_text(commit, "utf-8")
    size = sum(file.stat().st_size for file in BUNDLE.rglob("*") if file.is_file())
    print(f"{BUNDLE}: {size / 1e6:.1f} MB. Take it and the checkout along, and run `make gpu-proof` there.")
    return 0 if size < BYTES_MAX else 1


def _without(wheel: Path, unused: re.Pattern[str]) -> None:
    smaller = wheel.with_suffix(".smaller")
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(smaller, "w", zipfile.ZIP_DEFLATED) as kept:
        for member in whole.infolist():
            if not unused.match(member.filename):
                kept.writestr(member, whole.read(member))
    smaller.replace(wheel)


if __name__ == "__main__":
    sys.exit(main())
