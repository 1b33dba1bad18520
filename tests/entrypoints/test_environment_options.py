"""Options of environments on the command line that would have no effect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lightstream.cli.app import app
from lightstream.schemas.errors import SettingsError
from lightstream.trainers.environments.named import named_environment
from tests.trainers.environments.support import task_folder


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["runner", "agent.py:agent", "--env-option", "size=5"], "--env-option size=5 needs --env"),
        (["train", "agent.py:agent", "--tasks", "t.jsonl", "--env-option", "size=5"], "size=5 needs --env"),
        (["runner", "--env", "folder:tasks", "--verifier", "true"], "an environment, folder:tasks, and --verifier"),
        (["runner", "--env", "folder:tasks", "--reward", "exit"], "an environment, folder:tasks, and --reward"),
        (["runner", "--env", "folder:tasks", "--keep", "never"], "an environment, folder:tasks, and --keep"),
        (["runner", "--env", "folder:tasks", "--folder-mb-max", "1"], "folder:tasks, and --folder-mb-max"),
    ],
)
def test_options_without_an_effect_are_refused(arguments: list[str], problem: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code != 0
    assert problem in f"{result.output} {result.exception}"


@pytest.mark.parametrize("value", ["true", "7"])
def test_a_command_that_json_reads_as_something_else_is_refused(tmp_path: Path, value: str) -> None:
    task_folder(tmp_path, "one", "Do.", "true")
    options: dict[str, Any] = {"command": json.loads(value)}
    with pytest.raises(SettingsError, match=r"the option command is .*, and no text\. Quote it"):
        named_environment(f"folder:{tmp_path}", options)
