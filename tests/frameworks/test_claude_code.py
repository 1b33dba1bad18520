"""Claude Code itself, as a process of the agent's, with nothing but its base URL set. Needs Node and its registry."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lightstream.producers import rollout
from lightstream.schemas.types import LLM
from tests.frameworks.harness import Arena
from tests.frameworks.model_server import CallTools, Say, ScriptedModel, in_turn

pytestmark = pytest.mark.soak

INSTALL_TIMEOUT_S, RUN_TIMEOUT_S = 300, 600


@pytest.fixture(scope="module")
def claude(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command."""
    folder = tmp_path_factory.mktemp("claude")
    for command in (["npm", "init", "--yes"], ["npm", "install", "--silent", "@anthropic-ai/claude-code"]):
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=INSTALL_TIMEOUT_S)
    return folder / "node_modules" / ".bin" / "claude"


def test_a_task_that_takes_a_tool(scripted: Arena, script: ScriptedModel, claude: Path, tmp_path: Path) -> None:
    script.script = in_turn(
        CallTools.of("Bash", command="echo rain > weather.txt", description="writes it down"), Say("It rains.")
    )

    @rollout
    def agent(task: str, llm: LLM) -> None:
        folder = tmp_path / task.rpartition(" ")[2].rstrip(")")
        folder.mkdir()
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "ANTHROPIC_API_KEY": "none"}
        environment |= {"ANTHROPIC_BASE_URL": llm.endpoint, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        command = [str(claude), "-p", task, "--model", llm.model, "--allowedTools", "Bash"]
        done = subprocess.run(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_TIMEOUT_S,
        )
        assert done.stdout.strip() == "It rains.", done.stdout + done.stderr
        assert (folder / "weather.txt").read_text("utf-8") == "rain\n"

    scripted.check(scripted.run(agent), calls=2, joined=False)
