"""The README's "Train your agent", word by word: its commands and its program, as they stand there."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import pytest

from lightstream.runtime.services import find
from lightstream.runtime.settings import Settings
from lightstream.trainers import Trainer
from tests.support.forked import run_forked
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 1500.0
SERVICES = ("worker", "view", "proxy", "policy")


def section(page: str, title: str) -> str:
    """The text under a heading, down to the next one."""
    text = (ROOT / page).read_text("utf-8")
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def commands(text: str) -> list[list[str]]:
    """The commands of indented lines."""
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return [shlex.split(line) for line in re.findall(r"^    (\S.*)$", prose, re.MULTILINE)]


@pytest.fixture
def environment(kafka_servers: str, tmp_path: Path) -> dict[str, str]:
    """A shell in an empty folder, with the commands of this environment first; the broker of the tests."""
    return os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS": kafka_servers,
        "LIGHTSTREAM_TOPIC_PREFIX": f"readme{os.getpid()}.",
        "LIGHTSTREAM_GATEWAY_PORT": "0",  # the usual ones may be another test's
        "LIGHTSTREAM_GATEWAY_GRPC_PORT": "0",
        "PWD": str(tmp_path),
    }


@pytest.fixture
def up(environment: dict[str, str], tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """``lightstream up --policy`` as the README starts it."""
    (start, *_) = commands(section("README.md", "Train your agent"))
    assert start == ["lightstream", "up", "--policy"]
    with (tmp_path / "up.err").open("w") as err:
        process = subprocess.Popen(
            start, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=err, text=True
        )
    try:
        settings = Settings.load(data_dir=tmp_path / ".lightstream")
        eventually(lambda: all(find(settings, name) for name in SERVICES), what="everything runs")
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(300)


def rewards_of(output: str) -> list[float]:
    return [float(found) for found in re.findall(r"^step \d+/\d+  reward ([\d.]+)", output, re.MULTILINE)]


def test_the_readme_ends_with_a_rising_curve(
    up: subprocess.Popen[str], environment: dict[str, str], tmp_path: Path
) -> None:
    text = section("README.md", "Train your agent")
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "digits.py").write_text(program, "utf-8")
    _, make_model, train = commands(text)
    assert (make_model[0], train) == ("lightstream", ["python", "digits.py"])
    made = subprocess.run(make_model, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    done = [made, *(run_forked(train[1:], environment, tmp_path, TIMEOUT_S) for _ in range(2))]
    for made in done:
        assert (made.returncode, made.stderr) == (0, ""), made.stderr
    rewards = rewards_of(done[1].stdout)
    print([round(reward, 2) for reward in rewards])
    assert len(rewards) == 30
    assert fmean(rewards[:3]) < 0.2
    assert fmean(rewards[-5:]) > 0.85
    assert "Nothing left to do: 30 of 30 steps" in done[2].stdout
    assert (tmp_path / ".lightstream" / "logs" / "digits.log").is_file()
    assert up.poll() is None
    assert (tmp_path / "up.err").read_text() == ""


def test_the_programs_of_the_training_page_run(
    up: subprocess.Popen[str], environment: dict[str, str], tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "training.md").read_text("utf-8")
    programs = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(programs) == 3
    subprocess.run(["lightstream", "model", "tiny", "tiny-model"], cwd=tmp_path, env=environment, check=True)
    outputs: list[str] = []
    for number, program in enumerate(programs):
        (tmp_path / f"program{number}.py").write_text(program, "utf-8")
        done = run_forked([f"program{number}.py"], environment, tmp_path, TIMEOUT_S)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        outputs.append(done.stdout)
    assert outputs[0].count("validated: ") == 3, "before the first and the third step, and after the last"
    assert "Hi, {name}!: 0.250" in outputs[1]
    assert outputs[2].count("'outcome'") >= 7


def test_the_training_page_names_every_argument() -> None:
    page = (ROOT / "docs" / "training.md").read_text("utf-8")
    arguments = [name for name in inspect.signature(Trainer.__init__).parameters if name not in ("self", "clock")]
    assert [name for name in arguments if f"`{name}`" not in page] == []
