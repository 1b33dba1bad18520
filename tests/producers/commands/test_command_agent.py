"""Commands that misbehave, as a Runner's agents: each attempt ends with its reason, and nothing of it stays."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from lightstream.producers import OtelTracer
from lightstream.producers.commands import CommandAgent, CommandLimits
from lightstream.producers.runner import Hook, Outcome
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.types import AttemptedRollout, RolloutConfig
from tests.producers.commands.survivors import survivors
from tests.producers.commands.test_run_command import STUBBORN
from tests.producers.runner.running import SpansInLog, rewards, run
from tests.producers.support import ListStore

HARMLESS = {
    "fills the disk": ("head -c 9000000 /dev/zero > big; exit 4", "status 4|grown over 5,000,000 bytes"),
    "grows": ("i=0; while true; do i=$((i+1)); head -c 900000 /dev/zero > f$i; done", "grown over 5,000,000 bytes"),
    "prints 100 MB": ("head -c 100000000 /dev/zero; head -c 100000000 /dev/zero >&2; exit 5", "status 5"),
    "ends itself": ("kill -9 $$", r"status 137 \(SIGKILL\)"),
    "is not there": ("./no-such-program", "status 127"),
}
"""Commands that end by themselves, and what is said of them (of a file as large as the folder may be, either)."""


class LooksForSurvivors(Hook):
    """Fails an attempt whose end is reported while something of it still runs."""

    def __init__(self) -> None:
        self.seen: dict[str, list[int]] = {}

    async def on_rollout_end(self, *, rollout: AttemptedRollout, outcome: Outcome, **_: Any) -> None:
        self.seen[rollout.rollout_id] = survivors(rollout.attempt.attempt_id, "LIGHTSTREAM_ATTEMPT_ID")


@pytest.mark.parametrize("count", [24, pytest.param(200, marks=pytest.mark.soak)])
def test_hostile_commands_are_gone_when_their_attempt_ends(
    settings: Settings, tracer: OtelTracer, count: int, tmp_path: Path
) -> None:
    commands = dict(STUBBORN) | {name: command for name, (command, _) in HARMLESS.items()}
    names = list(commands)
    rng = random.Random(20261128)
    tasks = [f"{number} {rng.choice(names)}" for number in range(count)]
    cases = "\n".join(f"*' {name}\"') {command};;" for name, command in commands.items())
    limits = CommandLimits(folder_bytes_max=5_000_000, grace_s=0.5)
    agent = CommandAgent(f'case "$LIGHTSTREAM_TASK" in\n{cases}\nesac', limits=limits, settings=settings)
    store, hook = ListStore(), LooksForSurvivors()
    timeouts = RolloutConfig(timeout_seconds=3.0)
    configs = {task: timeouts for task in tasks if task.partition(" ")[2] in STUBBORN}
    assert run(store, agent, settings, tracer, tasks, n_concurrent=8, configs=configs, hooks=[hook]) == count
    assert hook.seen == {rollout_id: [] for rollout_id in store.ended}
    for number, task in enumerate(tasks):
        name = task.partition(" ")[2]
        succeeded, error_type, message = store.ended[f"r{number}"]
        assert not succeeded
        expected = ("CommandError", HARMLESS[name][1]) if name in HARMLESS else ("Timeout", "within 3 s")
        assert error_type == expected[0], (name, message)
        assert re.search(expected[1], message or ""), (name, message)


def test_rewards_of_exit_status_file_and_verifier(
    settings: Settings, tracer: OtelTracer, spans_in_log: SpansInLog
) -> None:
    agents = {
        "exit": (
            CommandAgent("exit $LIGHTSTREAM_TASK", reward="exit", settings=settings),
            {"0": 1.0, "1": 0.0, "9": 0.0},
        ),
        "file": (
            CommandAgent('echo "{\\"reward\\": $LIGHTSTREAM_TASK}" > "$LIGHTSTREAM_RESULT_FILE"', settings=settings),
            {"0": 0.0, "0.25": 0.25, "-3": -3.0},
        ),
        "verifier": (
            CommandAgent(
                'cat; echo 5 > "$LIGHTSTREAM_RESULT_FILE"',
                verifier='test "$(cat "$LIGHTSTREAM_OUTPUT_FILE")" = 7',
                settings=settings,
            ),
            {"7": 1.0, "8": 0.0},
        ),
    }
    for agent, expected in agents.values():
        before = len(spans_in_log())
        tasks = [float(task) if "." in task else int(task) for task in expected]
        store = ListStore()
        assert run(store, agent, settings, tracer, tasks) == len(tasks)
        assert all(succeeded for succeeded, _, _ in store.ended.values()), store.ended
        found = rewards(spans_in_log()[before:])
        assert found == {f"r{number}": reward for number, reward in enumerate(expected.values())}
    assert not any((settings.data_dir / "attempts").glob("*/*")), "folders of successes are removed"


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("mkfifo ../stdout.txt", None),
        ("mkdir ../stdout.txt ../stdout.err.txt", None),
        ('mkfifo "$LIGHTSTREAM_RESULT_FILE"', "result.json is no file"),
        ('mkdir "$LIGHTSTREAM_RESULT_FILE"', "the result file cannot be read"),
    ],
)
def test_a_program_that_takes_our_paths_blocks_nothing(
    settings: Settings, tracer: OtelTracer, command: str, problem: str | None
) -> None:
    store = ListStore()
    run(store, CommandAgent(command, settings=settings), settings, tracer, [1])
    succeeded, _, message = store.ended["r0"]
    assert succeeded is (problem is None), message
    assert (problem or "") in (message or "")


def test_a_verifier_that_fails_fails_the_attempt(settings: Settings, tracer: OtelTracer) -> None:
    store = ListStore()
    agent = CommandAgent("true", verifier="echo broken >&2; exit 2", settings=settings)
    run(store, agent, settings, tracer, [1])
    _, error_type, message = store.ended["r0"]
    assert error_type == "CommandError"
    assert "the verifier ended with status 2. It last wrote:\nbroken" in (message or "")


def test_a_program_has_none_of_the_runners_secrets(
    settings: Settings, tracer: OtelTracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIGHTSTREAM_KAFKA_SASL_PASSWORD", "canary")
    store = ListStore()
    agent = CommandAgent("if env | grep -q canary; then exit 1; fi", settings=settings)
    run(store, agent, settings, tracer, [1])
    assert store.ended["r0"][0]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"command": " "}, "the agent's command is empty. Name a program by its full path"),
        ({"reward": "stdout"}, "reward is 'stdout'; it is one of program, exit"),
        ({"keep": "all"}, "keep is 'all'; it is one of failed, always, never"),
    ],
)
def test_wrong_options_are_named(settings: Settings, changes: dict[str, Any], problem: str) -> None:
    arguments: dict[str, Any] = {"command": "true", "settings": settings} | changes
    with pytest.raises(SettingsError, match=problem):
        CommandAgent(**arguments)
