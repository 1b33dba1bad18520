"""Adapters against the real libraries that the lock file has, with a model that says what a test wants."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import reasoning_gym
from gymnasium import spaces
from reasoning_gym.utils import extract_answer

from lightstream.producers import CommandLimits
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.types import LLM, ProxyLLM
from lightstream.trainers.environments import Environment, EnvironmentFailedError, Task, task_set
from lightstream.trainers.environments.adapters import library
from lightstream.trainers.environments.adapters.folder import folder_environment
from lightstream.trainers.environments.adapters.gymnasium import gymnasium_environment
from lightstream.trainers.environments.adapters.mcp import McpServer, tool_agent
from lightstream.trainers.environments.adapters.openenv import without_secrets
from lightstream.trainers.environments.adapters.reasoning_gym import reasoning_gym_environment
from lightstream.trainers.environments.named import named_environment

from .support import model, rewards_of, task_folder, text_of

ROLLOUTS = 1000
DATA_SET = "chain_sum"
MCP_SERVER = Path(__file__).parents[2] / "frameworks" / "mcp_server.py"


# --- reasoning-gym ---------------------------------------------------------------------------------------------------


def test_rewards_of_reasoning_gym_are_the_librarys_own(settings: Settings) -> None:
    environment = reasoning_gym_environment(DATA_SET, size=ROLLOUTS, seed=7)
    entries = reasoning_gym.create_dataset(DATA_SET, size=ROLLOUTS, seed=7)
    answers = {entry["question"]: entry["answer"] for entry in (entries[n] for n in range(ROLLOUTS))}

    def answer(messages: list[dict[str, Any]]) -> str:
        right = answers[text_of(messages)]
        return (right, f"I think <answer>{right}</answer>", f"it is {right}", "none")[abs(int(right)) % 4]

    with model(settings, answer) as llm:
        rewards = rewards_of(environment, environment.train, llm, range(ROLLOUTS))
    own: list[float] = []
    for index in range(ROLLOUTS):
        text = answer([{"content": entries[index]["question"]}])
        extracted = extract_answer(text)
        own.append(entries.score_answer(text if extracted is None else extracted, entries[index]))
    assert rewards == own
    assert {0.0, 1.0} < set(rewards), "a part of a reward is among them"


def test_tasks_of_reasoning_gym_follow_from_the_seed() -> None:
    first, again = (reasoning_gym_environment(DATA_SET, size=20, validation_size=5, seed=3) for _ in range(2))
    other = reasoning_gym_environment(DATA_SET, size=20, validation_size=5, seed=4)
    assert first.digest == again.digest != other.digest
    validation = first.validation
    assert validation is not None
    assert (len(first.train), len(validation)) == (20, 5)
    questions = [{task.input for task in part.tasks} for part in (first.train, validation)]
    assert not questions[0] & questions[1]


# --- Gymnasium -------------------------------------------------------------------------------------------------------


class Guess(gymnasium.Env[str, int]):
    """Guess a digit in five turns: 1 for the digit, a tenth for one that is next to it."""

    metadata = {"render_modes": []}
    action_space: Any = spaces.Discrete(10)
    observation_space: Any = spaces.Text(40)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._digit = int(self.np_random.integers(10))
        self._turn = 0
        return f"Guess a digit ({seed}).", {}

    def step(self, action: int) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self._turn += 1
        away = abs(int(action) - self._digit)
        reward = {0: 1.0, 1: 0.1}.get(away, 0.0)
        return ("higher" if action < self._digit else "lower"), reward, away == 0, self._turn == 5, {}


class OddRewards(Guess):
    """Its rewards are no numbers."""

    reward: Any = float("nan")

    def step(self, action: int) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "again", self.reward, True, False, {}


class RewardsInAList(OddRewards):
    reward = [0.5, 0.5]


class Raises(Guess):
    def step(self, action: int) -> tuple[str, float, bool, bool, dict[str, Any]]:
        raise RuntimeError("the game is broken")


def guesses(messages: list[dict[str, Any]]) -> str:
    """A guess that follows from the conversation alone."""
    seed = int(messages[0]["content"].split("(")[1].split(")")[0])
    turn = sum(message["role"] == "assistant" for message in messages)
    return f"I say {random.Random(f'{seed}-{turn}').randrange(10)}."


def test_rewards_of_gymnasium_are_the_environments_own(settings: Settings) -> None:
    environment = gymnasium_environment(Guess, episodes=ROLLOUTS)
    with model(settings, guesses) as llm:
        rewards = rewards_of(environment, environment.train, llm, range(ROLLOUTS))
    own: list[float] = []
    for seed in range(ROLLOUTS):
        game = Guess()
        game.reset(seed=seed)
        total, turn, ended = 0.0, 0, False
        while not ended:
            _, reward, terminated, truncated, _ = game.step(random.Random(f"{seed}-{turn}").randrange(10))
            total, turn, ended = total + reward, turn + 1, terminated or truncated
        own.append(total)
    assert rewards == own
    assert len(set(own)) > 3


def test_a_registered_environment_shows_its_picture(settings: Settings) -> None:
    shown: list[str] = []

    def right(messages: list[dict[str, Any]]) -> str:
        shown.append(text_of(messages))
        return "2"

    environment = gymnasium_environment("FrozenLake-v1", episodes=1, turns_max=2, render_mode="ansi", is_slippery=False)
    with model(settings, right) as llm:
        assert rewards_of(environment, environment.train, llm, [0]) == [0.0]
    assert len(shown) == 2
    assert all("FFFH" in text for text in shown)
    assert shown[0] != shown[1]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (OddRewards, "nan, which is no finite number"),
        (RewardsInAList, r"gave the reward \[0.5, 0.5\] for a turn"),
        (Raises, "the game is broken"),
    ],
    ids=["nan", "list", "raises"],
)
def test_a_game_without_rewards_fails_with_a_reason(settings: Settings, make: type[Guess], reason: str) -> None:
    environment = gymnasium_environment(make, episodes=1)
    with model(settings, guesses) as llm:
        (error,) = rewards_of(environment, environment.train, llm, [0])
    assert isinstance(error, Exception)
    with pytest.raises(type(error), match=reason):
        raise error


def test_actions_of_another_kind_need_a_function(settings: Settings) -> None:
    class Continuous(Guess):
        action_space: Any = spaces.Box(-1, 1, dtype=np.float32)

    environment = gymnasium_environment(Continuous, episodes=1)
    with model(settings, guesses) as llm:
        (error,) = rewards_of(environment, environment.train, llm, [0])
    assert isinstance(error, EnvironmentFailedError)
    assert "Give act=" in str(error)


# --- MCP -------------------------------------------------------------------------------------------------------------


def call(name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"content": None, "tool_calls": [{"id": "call-1", "type": "function", "function": function}]}


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        (call("weather", '{"city": "Bergen"}'), "rain in Bergen"),
        (call("temperature", "{}"), "Error: there is no tool 'temperature'; there are weather."),
        (call("weather", '{"city": '), "Error: the arguments are no JSON"),
        (call("weather", "{}"), "Error: "),
    ],
    ids=["right", "no such tool", "no json", "no argument"],
)
def test_an_agent_has_the_tools_of_a_server(settings: Settings, asked: dict[str, Any], answered: str) -> None:
    seen: list[str] = []

    def script(messages: list[dict[str, Any]]) -> str | dict[str, Any]:
        if messages[-1]["role"] == "tool":
            seen.append(text_of(messages))
            return "It rains."
        return {"role": "assistant", **asked}

    def is_right(_task: Task, answer: Any) -> float:
        return float(answer == "It rains.")

    agent = tool_agent(McpServer(command=[sys.executable, str(MCP_SERVER)]))
    environment = Environment(task_set("weather", ["How is the weather in Bergen?"]), agent, is_right)
    with model(settings, script) as llm:
        assert rewards_of(environment, environment.train, llm, [0]) == [1.0]
    assert len(seen) == 1
    assert answered in seen[0]


def test_a_server_that_does_not_start_fails_the_attempt(settings: Settings) -> None:
    agent = tool_agent(McpServer(command=[sys.executable, "-c", "raise SystemExit(3)", "--token=secret"]))
    environment = Environment(task_set("none", ["x"]), agent, lambda task, answer: 1.0)
    with model(settings, lambda messages: "x") as llm:
        (error,) = rewards_of(environment, environment.train, llm, [0])
    assert isinstance(error, EnvironmentFailedError)
    assert f"the MCP server {sys.executable} gives no tools" in str(error)
    assert "secret" not in str(error)


def test_an_address_is_shown_without_its_secrets() -> None:
    url = "https://me:secret@host:8080/mcp?token=secret#secret"
    assert McpServer(url=url).shown == without_secrets(url) == "https://host:8080/mcp"


def test_a_server_is_a_program_or_an_address() -> None:
    with pytest.raises(SettingsError, match="Give one of them"):
        McpServer()


# --- folders of tasks ------------------------------------------------------------------------------------------------

TESTS = """
set -e
test "$(cat /app/answer.txt)" = "$(cat /tests/expected.txt)" && reward=1 || reward=0
echo $reward > /logs/verifier/reward.txt
"""


def add_task(root: Path, name: str, number: int) -> None:
    folder = task_folder(root, name, f"Say {number}.", TESTS)
    (folder / "tests" / "expected.txt").write_text(str(number), "utf-8")


def test_the_tests_of_a_folder_reward_the_models_answer(settings: Settings, tmp_path: Path) -> None:
    root = tmp_path / "tasks"
    for number in range(4):
        add_task(root, f"{'train' if number < 3 else 'validation'}/say-{number}", number)
    environment = folder_environment(root, settings=settings)
    assert len(environment.validation or ()) == 1
    with model(settings, lambda messages: "1") as llm:
        assert rewards_of(environment, environment.train, llm, range(3)) == [0.0, 1.0, 0.0]


def test_an_agent_may_be_a_command_that_works_in_the_folder(settings: Settings, tmp_path: Path) -> None:
    folder = task_folder(tmp_path / "tasks", "copy", "Copy.", 'cmp in.txt out.txt && echo \'{"reward": 1, "size": 3}\' '
                         '> "$LOGS_DIR/verifier/reward.json"')  # fmt: skip
    (folder / "environment").mkdir()
    (folder / "environment" / "in.txt").write_text("abc", "utf-8")
    (folder / "environment" / "Dockerfile").write_text("FROM scratch", "utf-8")
    command = "test ! -e Dockerfile && test ! -e ../tests && cp in.txt out.txt"
    environment = folder_environment(tmp_path / "tasks", command=command, settings=settings)
    with model(settings, lambda messages: "") as llm:
        assert rewards_of(environment, environment.train, llm, [0]) == [{"reward": 1.0, "size": 3.0}]


def test_the_model_has_a_shell_in_the_folder(settings: Settings, tmp_path: Path) -> None:
    task_folder(tmp_path / "tasks", "write", "Write 7.", "grep -q 7 /app/seven && echo 1 > /logs/verifier/reward.txt")
    seen: list[str] = []

    def script(messages: list[dict[str, Any]]) -> str | dict[str, Any]:
        if messages[-1]["role"] == "tool":
            seen.append(text_of(messages))
            return "done"
        return {"role": "assistant", **call("bash", '{"command": "echo 7 > seven; env | grep -c API_KEY; exit 3"}')}

    environment = folder_environment(tmp_path / "tasks", settings=settings)
    with model(settings, script) as llm:
        assert rewards_of(environment, environment.train, llm, [0]) == [1.0]
    assert seen == ["0\n\n(exit status 3)"]


def scripted(*commands: str) -> Callable[[list[dict[str, Any]]], str | dict[str, Any]]:
    """A model that runs these commands, one after another, and says done."""

    def answer(messages: list[dict[str, Any]]) -> str | dict[str, Any]:
        done = sum(message["role"] == "tool" for message in messages)
        if done == len(commands):
            return "done"
        return {"role": "assistant", **call("bash", json.dumps({"command": commands[done]}))}

    return answer


def test_the_models_shell_and_the_tests_have_no_secret_and_no_address_of_a_reward(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    tests = 'env > "$APP_DIR/tests-env"; echo 1 > /logs/verifier/reward.txt'
    task_folder(tmp_path / "tasks", "one", "Do.", tests)
    environment = folder_environment(tmp_path / "tasks", keep="always", settings=settings)
    with model(settings, scripted("env > shell-env")) as llm:
        assert rewards_of(environment, environment.train, llm, [0]) == [1.0]
    found = {file.name: file.read_text() for file in settings.data_dir.rglob("*-env")}
    assert set(found) == {"shell-env", "tests-env"}
    for text in found.values():
        names = {line.partition("=")[0] for line in text.splitlines()}
        assert {"PATH", "LIGHTSTREAM_TASK_FILE"} <= names
        assert not [name for name in names if "TOKEN" in name or "KEY" in name or name.endswith("_URL")]


def test_a_command_agent_has_the_model_and_cannot_reward_itself(settings: Settings, tmp_path: Path) -> None:
    task_folder(tmp_path / "tasks", "one", "Do.", "echo 1 > /logs/verifier/reward.txt")
    command = 'test -n "$OPENAI_BASE_URL" && test -z "$LIGHTSTREAM_REWARD_URL"'
    environment = folder_environment(tmp_path / "tasks", command=command, settings=settings)
    llm = ProxyLLM(endpoint="http://127.0.0.1:9", model="m")
    assert rewards_of(environment, environment.train, llm, [0]) == [1.0]


@pytest.mark.parametrize(
    "command",
    [
        "mkfifo answer.txt",
        "mkdir -p answer.txt/inner",
        'ln -s "$OUTSIDE" answer.txt',
        "mkfifo ../tests.txt",
        "mkdir ../tests.txt",
        'ln -s "$OUTSIDE" ../tests',
        'ln -s "$OUTSIDE" ../logs',
        "mkdir -p ../logs/verifier; echo 9 > ../logs/verifier/reward.json; chmod 0 ../logs",
        "mkfifo ../tests",
    ],
)
def test_paths_that_the_model_has_taken_neither_block_nor_lead_elsewhere(
    settings: Settings, tmp_path: Path, command: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    task_folder(
        tmp_path / "tasks", "one", "Do.", 'echo $(cat "$APP_DIR/answer.txt"); echo 1 > /logs/verifier/reward.txt'
    )
    environment = folder_environment(tmp_path / "tasks", settings=settings)
    with model(settings, scripted(command.replace("$OUTSIDE", str(outside)))) as llm:
        assert rewards_of(environment, environment.train, llm, [0]) == [1.0]
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("cat /app/x", True),
        ('cat "/app/x"', True),
        ("open('/app/x')", True),
        ('open(f"/app/{name}")', True),
        ("PATH=/bin:/app", True),
        ("(cd /app&& make)", True),
        ("${X:-/app}", True),
        ("ls /app|wc", True),
        ('["/app", 1]', True),
        ("[/app]", True),
        ("Write `x` to `/app`.", True),
        ("Work in /app.", True),
        ('"$ROOT"/app/x', False),
        ("'root'/app/x", False),
        ("${ROOT}/app", False),
        ("$(pwd)/app", False),
        ("ls */app", False),
        ('for f in *; do ls "$f"/app; done', False),
        ("/usr/app /application /app.py ./app", False),
    ],
)
def test_folders_of_a_container_become_those_of_the_attempt(
    settings: Settings, tmp_path: Path, line: str, changed: bool
) -> None:
    tests = f"cat > /dev/null <<'END'\n{line}\nEND\ncp \"$0\" ../kept.txt; echo 1 > /logs/verifier/reward.txt"
    task_folder(tmp_path / "tasks", "one", line, tests)
    command = "cp ../instruction.md ../said.txt"
    environment = folder_environment(tmp_path / "tasks", command=command, keep="always", settings=settings)
    llm = LLM(endpoint="http://127.0.0.1:9/v1", model="m")
    assert rewards_of(environment, environment.train, llm, [0]) == [1.0]
    (kept,) = settings.data_dir.absolute().rglob("kept.txt")
    expected = line.replace("/app", str(kept.parent / "work")) if changed else line
    assert kept.read_text("utf-8").splitlines()[1] == expected
    assert kept.with_name("said.txt").read_text("utf-8") == expected


def test_a_data_folder_that_a_shell_reads_otherwise_is_refused(settings: Settings, tmp_path: Path) -> None:
    task_folder(tmp_path / "tasks", "one", "Do.", "true")
    blank = settings.model_copy(update={"data_dir": tmp_path / "my data"})
    with pytest.raises(SettingsError, match="has a blank or a sign that a shell reads"):
        folder_environment(tmp_path / "tasks", settings=blank)


def test_a_working_folder_that_became_a_link_fails_the_attempt(settings: Settings, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    task_folder(tmp_path / "tasks", "one", "Do.", "echo 1 > /logs/verifier/reward.txt")
    environment = folder_environment(tmp_path / "tasks", settings=settings)
    with model(settings, scripted(f"mv ../work ../away; ln -s {outside} ../work")) as llm:
        (error,) = rewards_of(environment, environment.train, llm, [0])
    assert isinstance(error, EnvironmentFailedError)
    assert "the working folder is a link" in str(error)
    assert list(outside.iterdir()) == []


def test_a_task_folder_that_the_agent_changes_is_not_tested(settings: Settings, tmp_path: Path) -> None:
    folder = task_folder(tmp_path / "tasks", "one", "Do.", "echo 0 > /logs/verifier/reward.txt")
    command = f"echo 'echo 1 > /logs/verifier/reward.txt' > {folder}/tests/test.sh"
    environment = folder_environment(tmp_path / "tasks", command=command, settings=settings)
    llm = LLM(endpoint="http://127.0.0.1:9/v1", model="m")
    (error,) = rewards_of(environment, environment.train, llm, [0])
    assert isinstance(error, EnvironmentFailedError)
    assert "was changed since the run was begun" in str(error)


def test_time_limits_that_no_attempt_has_are_named(settings: Settings, tmp_path: Path) -> None:
    limits = "[agent]\ntimeout_sec = 400\n[verifier]\ntimeout_sec = 201\n"
    task_folder(tmp_path / "tasks", "one", "Do.", "echo 1 > /logs/verifier/reward.txt", limits)
    environment = folder_environment(tmp_path / "tasks", command="true", settings=settings)
    llm = LLM(endpoint="http://127.0.0.1:9/v1", model="m")
    (error,) = rewards_of(environment, environment.train, llm, [0])
    assert isinstance(error, EnvironmentFailedError)
    assert "400 s for the agent and 201 s for the tests, and an attempt ends after 600 s" in str(error)
    assert "LIGHTSTREAM_ROLLOUT_TIMEOUT_S" in str(error)


def test_a_task_folder_has_a_bound_of_bytes(settings: Settings, tmp_path: Path) -> None:
    folder = task_folder(tmp_path / "tasks", "one", "Do.", "true")
    (folder / "large").write_bytes(bytes(2000))
    with pytest.raises(SettingsError, match="has 2,007 bytes, and 1,000 are allowed"):
        folder_environment(tmp_path / "tasks", limits=CommandLimits(folder_bytes_max=1000), settings=settings)


def test_tasks_in_no_split_are_trained_on_and_held_out_ones_never(settings: Settings, tmp_path: Path) -> None:
    for name in ("a", "b", "test/c", "more/d"):
        task_folder(tmp_path / "tasks", name, "Do.", "true")
    environment = folder_environment(tmp_path / "tasks", settings=settings)
    assert [task.id for task in environment.train.tasks] == ["a", "b", "more/d"]
    assert [task.id for task in (environment.validation or environment.train).tasks] == ["test/c"]


HANGS = "trap '' TERM; while true; do sleep 1; done"


@pytest.mark.parametrize(
    ("command", "tests", "reason"),
    [
        ("exit 3", "echo 1 > /logs/verifier/reward.txt", "command ended with status 3"),
        ("true", "true", "wrote no reward"),
        ("true", "echo nan > /logs/verifier/reward.txt", "'nan' to reward.txt|nan, which is no finite"),
        ("true", "echo '[1, 0]' > /logs/verifier/reward.txt", "gave 2 rewards, one per turn"),
        ("true", "echo well done > /logs/verifier/reward.txt", "'well done' to reward.txt"),
        ("true", "ln -s /etc/hostname /logs/verifier/reward.txt", "wrote no reward"),
        (HANGS, "true", "the agent took longer than 1 s"),
        ("true", HANGS, "the tests took longer than 1 s"),
    ],
    ids=["status", "no reward", "nan", "per turn", "prose", "link", "agent hangs", "tests hang"],
)
def test_a_task_without_a_verdict_fails_with_a_reason(
    settings: Settings, tmp_path: Path, command: str, tests: str, reason: str
) -> None:
    part = {"the agent took": "agent", "the tests took": "verifier"}.get(reason[:14])
    limits = f"[{part}]\ntimeout_sec = 1\n" if part else ""
    task_folder(tmp_path / "tasks", "one", "Do.", tests, limits)
    environment = folder_environment(tmp_path / "tasks", command=command, settings=settings)
    with model(settings, lambda messages: "") as llm:
        (error,) = rewards_of(environment, environment.train, llm, [0])
    assert isinstance(error, EnvironmentFailedError)
    with pytest.raises(EnvironmentFailedError, match=reason):
        raise error


def leads_out(folder: Path) -> None:
    (folder / "environment").mkdir()
    (folder / "environment" / "secret").symlink_to("/etc/passwd")


def leads_out_as_a_folder(folder: Path) -> None:
    (folder / "environment").symlink_to("/etc")


def has_a_loop(folder: Path) -> None:
    (folder / "loop").symlink_to("loop")


def has_a_link_to_itself(folder: Path) -> None:
    (folder / "environment").mkdir()
    (folder / "environment" / "again").symlink_to("..")


def has_no_tests(folder: Path) -> None:
    (folder / "tests" / "test.sh").unlink()


def has_a_limit_that_is_none(folder: Path) -> None:
    (folder / "task.toml").write_text("[agent]\ntimeout_sec = -1\n", "utf-8")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (leads_out, "secret is a link, to /etc/passwd"),
        (leads_out_as_a_folder, "environment is a link, to /etc"),
        (has_a_loop, "loop is a link, to loop"),
        (has_a_link_to_itself, r"again is a link, to \.\."),
        (has_no_tests, "has no tests/test.sh"),
        (has_a_limit_that_is_none, "timeout_sec of \\[agent\\] in .* is -1"),
    ],
    ids=["link", "folder", "loop", "itself", "tests", "limit"],
)
def test_a_hostile_folder_is_refused(
    settings: Settings, tmp_path: Path, change: Callable[[Path], None], problem: str
) -> None:
    change(task_folder(tmp_path / "tasks", "one", "Do.", "true"))
    with pytest.raises(SettingsError, match=problem):
        folder_environment(tmp_path / "tasks", settings=settings)


@pytest.mark.parametrize(
    ("place", "reason"),
    [("../secret", "leads out of"), ("/etc", "leads out of"), ("two", "has no task folder"), (None, "names no folder")],
    ids=["up", "absolute", "missing", "none"],
)
def test_a_task_of_the_log_cannot_name_another_folder(
    settings: Settings, tmp_path: Path, place: str | None, reason: str
) -> None:
    task_folder(tmp_path, "secret", "Do.", "true")
    task_folder(tmp_path / "tasks", "one", "Do.", "echo 1 > /logs/verifier/reward.txt")
    environment = folder_environment(tmp_path / "tasks", command="true", settings=settings)
    hostile = task_set("x", [{"input": environment.train[0] | {"folder": place}}])
    # The log's metadata are as hostile as its input: no digest gives the task away.
    hostile.metadata_of = lambda index: {}  # type: ignore[method-assign]
    with model(settings, lambda messages: "") as llm:
        (error,) = rewards_of(environment, hostile, llm, [0])
    assert isinstance(error, EnvironmentFailedError)
    assert reason in str(error)


def test_a_folder_that_changed_under_a_run_is_refused(settings: Settings, tmp_path: Path) -> None:
    folder = task_folder(tmp_path / "tasks", "one", "Do.", "echo 0 > /logs/verifier/reward.txt")
    environment = folder_environment(tmp_path / "tasks", command="true", settings=settings)
    (folder / "tests" / "test.sh").write_text("echo 1 > /logs/verifier/reward.txt", "utf-8")
    with model(settings, lambda messages: "") as llm:
        (error,) = rewards_of(environment, environment.train, llm, [0])
    assert isinstance(error, EnvironmentFailedError)
    assert "was changed since the run was begun" in str(error)
    assert folder_environment(tmp_path / "tasks", settings=settings).digest != environment.digest


# --- names and versions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("reasoning-gym:nothing", {}, "has no data set 'nothing'"),
        ("reasoning-gym:chain_sum", {"colour": "red"}, "cannot make 'chain_sum'"),
        ("gym:chain_sum", {}, "there is no environment 'gym:chain_sum'"),
        ("folder:/nowhere", {}, "has no task folder"),
        ("folder:/nowhere", {"colour": "red"}, "does not take"),
    ],
    ids=["data set", "its option", "kind", "folder", "option"],
)
def test_names_that_are_none_are_explained(name: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        named_environment(name, options)


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ("none", "reasoning-gym is not installed. Install it: pip install 'reasoning-gym>=0.1.25,<0.2'"),
        ("0.1.3", "reasoning-gym 0.1.3 is installed, and its adapter is made for"),
        ("0.2.0", "reasoning-gym 0.2.0 is installed"),
    ],
)
def test_a_library_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch, found: str, problem: str) -> None:
    monkeypatch.setattr(library, "installed", lambda _distribution: found)
    with pytest.raises(SettingsError) as raised:
        reasoning_gym_environment(DATA_SET)
    assert problem in str(raised.value)
