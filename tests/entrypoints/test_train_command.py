"""The parts of ``lightstream train``: agents by name, files of tasks, algorithms with their options."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from lightstream.cli.agents import load_agent, load_named, name_of_file
from lightstream.cli.train import algorithm_of, options_given, read_tasks
from lightstream.schemas.errors import SettingsError
from lightstream.trainers import VERL

AGENT = """
from lightstream.producers import rollout
from {neighbour} import helper


@rollout
def answer(task, llm):
    return helper(task)


number = 7
"""


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_an_agent_of_a_file_that_imports_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "an_agent_of_mine.py").write_text(AGENT.format(neighbour="a_neighbour_of_mine"))
    (tmp_path / "a_neighbour_of_mine.py").write_text("def helper(task):\n    return 0.5\n")
    name = f"{tmp_path}/an_agent_of_mine.py:answer"
    assert load_agent(name) is sys.modules["an_agent_of_mine"].answer
    assert name_of_file(name) == "an_agent_of_mine"
    assert name_of_file("package.module:agent") == "module"
    with pytest.raises(SettingsError, match=r"number' is a int, and no agent"):
        load_agent(f"{tmp_path}/an_agent_of_mine.py:number")


def test_what_is_no_agent_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken_agent.py").write_text("1 / 0\n")
    (tmp_path / "json.py").write_text("agent = 1\n")
    for name, problem in (
        ("agent.py", "names nothing to load"),
        (f"{tmp_path}/missing.py:agent", "there is no file .*missing.py"),
        (f"{tmp_path}/broken_agent.py:agent", "cannot be imported: ZeroDivisionError"),
        (f"{tmp_path}/json.py:agent", r"json\.py has the name of another module"),
        ("no_such_module_here:agent", "cannot be imported: ModuleNotFoundError"),
        ("os:agent", "os has no 'agent'"),
    ):
        with pytest.raises(SettingsError, match=problem):
            load_named(name)


def test_tasks_are_lines_or_a_list(tmp_path: Path) -> None:
    tasks = [{"question": "a\u2028b"}, "text", 3]
    lines, whole = tmp_path / "tasks.jsonl", tmp_path / "tasks.json"
    lines.write_text("".join(f"{json.dumps(task, ensure_ascii=False)}\n\n" for task in tasks), "utf-8")
    whole.write_text(json.dumps(tasks), "utf-8")
    assert read_tasks(lines) == read_tasks(whole) == tasks


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("tasks.jsonl", b'{"a": 1}\n\n{"a": 2\n', "line 3 of .*tasks.jsonl is no JSON"),
        ("tasks.jsonl", b"\n", "has no tasks"),
        ("tasks.jsonl", b"\xff\n", "cannot be read"),
        ("tasks.json", b'{"a": 1}', "has no list of tasks"),
        ("tasks.json", b"[1,", "is no JSON"),
    ],
)
def test_a_broken_file_of_tasks_is_named(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SettingsError, match=problem):
        read_tasks(tmp_path / name)
    with pytest.raises(SettingsError, match="cannot be read"):
        read_tasks(tmp_path / "missing.jsonl")


def test_algorithms_by_name_with_options(tmp_path: Path) -> None:
    made = algorithm_of("rloo", ["model=m", "steps=3", 'sampling_parameters={"max_tokens": 4}'], None)
    assert made == VERL(advantage="rloo", model="m", steps=3, sampling_parameters={"max_tokens": 4})
    config = tmp_path / "verl.yaml"
    config.write_text("algorithm: {adv_estimator: grpo}\nactor_rollout_ref.model.path: m\ntrainer.total_epochs: 2\n")
    assert algorithm_of("verl", ["learning_rate=1e-3"], config) == VERL(model="m", epochs=2, learning_rate=1e-3)
    (tmp_path / "algorithm_of_mine.py").write_text("def mine(context): ...\n")
    own = algorithm_of(f"{tmp_path}/algorithm_of_mine.py:mine", [], None)
    assert own is sys.modules["algorithm_of_mine"].mine


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("grpo", ["step=3"], r"no option 'step' \(the nearest is steps\)"),
        ("grpo", ["steps"], "option 'steps' has no value"),
        ("grpo", ["model=m", "steps=many"], "VERL does not take these options"),
        ("ppo2", ["model=m", "steps=3"], "there is no algorithm 'ppo2'.* There are grpo, "),
        ("os:getcwd", ["steps=3"], "options are of VERL"),
        ("verl", [], "there is no algorithm 'verl'"),
    ],
)
def test_what_is_no_algorithm_is_named(name: str, options: list[str], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        algorithm_of(name, options, None)


def test_a_configuration_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "verl.yaml"
    for content, problem in (("a: [1", "is no configuration"), ("- a\n", "it has no keys"), ("a: ${b}\n", "no config")):
        broken.write_text(content)
        with pytest.raises(SettingsError, match=problem):
            algorithm_of("verl", [], broken)


def test_each_option_is_a_flag() -> None:
    given = options_given(["--model", "m", "--steps=3", "--learning-rate", "1e-5", "--sampling-parameters={}"])
    verl = algorithm_of("rloo", given, None)
    assert (verl.model, verl.steps, verl.learning_rate, verl.sampling_parameters) == ("m", 3, 1e-5, {})
    for wrong in (["steps", "3"], ["--steps"]):
        with pytest.raises(SettingsError, match="is no option with a value"):
            options_given(wrong)
