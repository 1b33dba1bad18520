"""Wheel and sdist of ``dist`` in bare environments, by pip (newest and 23) and uv, without the lock."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.install

ROOT = Path(__file__).parents[2]
LIMIT_S = 300.0
AGENT = """
from lightstream.producers import rollout


@rollout
def agent(task: str) -> float:
    return 0.0
"""
UV = Path(sys.executable).with_name("uv")


def built(form: str) -> Path:
    """The file of ``make dist``."""
    (file,) = (ROOT / "dist").glob("*.whl" if form == "wheel" else "*.tar.gz")
    return file


def run(*command: str | Path, check: bool = True, timeout_s: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LIGHTSTREAM", "HATCH"))}
    if environment.get("SSL_CERT_FILE") == str(ROOT / "tests/support/certificate.pem"):
        del environment["SSL_CERT_FILE"]  # of the other tests, whose servers are all here
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, check=False, env=environment, cwd="/"
    )
    assert done.returncode == 0 or not check, done.stdout[-2000:] + done.stderr[-4000:]
    return done


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Of an environment, which takes up to 6 GB and is removed at the end."""
    yield tmp_path / "env"
    shutil.rmtree(tmp_path / "env", ignore_errors=True)


@pytest.mark.parametrize("form", ["wheel", "sdist"])
@pytest.mark.parametrize("extra", ["", "[all]"])
@pytest.mark.parametrize("installer", ["pip", "pip==23.0.1", "uv"])
def test_it_installs_within_five_minutes_and_runs(installer: str, extra: str, form: str, folder: Path) -> None:
    venv.create(folder, with_pip=installer != "uv", symlinks=True)
    python = folder / "bin" / "python"
    wanted = f"lightstream-rl{extra} @ {built(form).as_uri()}"
    if installer == "uv":
        run(UV, "pip", "install", "--quiet", "--python", python, wanted)
    else:
        run(python, "-m", "pip", "install", "--quiet", "--upgrade", installer)
        run(python, "-m", "pip", "install", "--quiet", wanted)
    lightstream = folder / "bin" / "lightstream"
    assert re.fullmatch(
        r"lightstream-rl \d+\.\d+\.\d+(\.dev\d+)? \(commit [0-9a-f]{7,}\)\n", run(lightstream, "--version").stdout
    )
    run(lightstream, "--help")
    run(python, "-c", "import lightstream.producers, lightstream.schemas; print(lightstream.schemas.__version__)")
    if extra:
        run(python, "-c", "import faust, duckdb, litellm, torch; from lightstream.trainers import VERL, Trainer")
        return
    agent, tasks = folder.with_name("agent.py"), folder.with_name("tasks.jsonl")
    agent.write_text(AGENT, "utf-8")
    tasks.write_text('"task"\n', "utf-8")
    for command, extras in (
        (["up"], "all"),
        (["sql", "SELECT 1"], "view"),
        (["train", f"{agent}:agent", "--tasks", str(tasks)], "train,view"),
    ):
        data = folder.with_name("data")
        told = run("env", f"LIGHTSTREAM_DATA_DIR={data}", lightstream, *command, check=False)
        assert told.returncode == 1
        assert f'pip install "lightstream-rl[{extras}] @ {built(form).as_uri()}"' in told.stderr
        assert "Traceback" not in told.stderr
        assert not data.exists(), "nothing was started"
