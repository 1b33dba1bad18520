"""The README's program runs as it stands there, saved into a file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from lightstream.schemas.settings import Settings
from lightstream.store_views.client import ViewClient
from lightstream.trainers import make_tiny_model
from lightstream.up import Stack
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
SMALLER = {
    '"path/to/model"': "{model!r}",
    "steps=100": "steps=2",
    "tasks_per_step=16": "tasks_per_step=2",
    "rollouts_per_task=8": "rollouts_per_task=2, sampling_parameters={{'max_tokens': 2}}",
}
"""What a test changes: a model that is there, and less of everything."""


def program(model: Path) -> str:
    blocks: list[str] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    (block,) = blocks
    for there, here in SMALLER.items():
        assert block.count(there) == 1, there
        block = block.replace(there, here.format(model=str(model)))
    return block


def test_the_program_of_the_readme_trains(tmp_path: Path) -> None:
    script = tmp_path / "answer.py"
    script.write_text(program(make_tiny_model(tmp_path / "model")), "utf-8")
    with Stack(Settings.load(data_dir=tmp_path / "data"), services=("worker", "view", "policy", "proxy")) as stack:
        done = subprocess.run(
            [sys.executable, script],
            env=os.environ | stack.settings.to_environment(),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        view = ViewClient(stack.settings)
        eventually(lambda: view.query("SELECT count(*) FROM training_steps").scalar() == 2, what="both steps shown")
        trained = view.query("SELECT count(*) FROM trained").scalar()
        view.close()
    assert trained == 2 * 2 * 2
