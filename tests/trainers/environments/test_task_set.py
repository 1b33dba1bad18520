"""Task sets: digests, sources, parts, and which tasks a step has."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import duckdb
import pytest

from lightstream.schemas.errors import TrainingError
from lightstream.trainers.environments import (
    Task,
    TaskSet,
    generated_task_set,
    load_task_set,
    task_set,
    task_set_of,
)
from lightstream.trainers.run.identity import check_same_run, identity_of_dataset
from lightstream.trainers.run.tasks import TasksOfStep, task_of, tasks_of_step

ROWS: list[Any] = [
    {"id": "one", "input": "1 + 1", "metadata": {"answer": 2, "level": 3}, "split": "train"},
    {"id": "two", "input": {"a": 2, "b": 1}, "metadata": {"answer": 3, "level": 1}, "split": "train"},
    {"id": "three", "input": "say ü", "metadata": {"answer": "ü", "level": 2}, "split": "test"},
]


def wanted(step: int, count: int, seed: int = 0, known: int = 0) -> TasksOfStep:
    return TasksOfStep(run_id="run", seed=seed, step=step, count=count, known_step=known)


def test_a_set_of_each_source_is_the_same_set(tmp_path: Path) -> None:
    lines = tmp_path / "sums.jsonl"
    lines.write_text("\n".join(json.dumps(row) for row in ROWS) + "\n\n", "utf-8")
    (tmp_path / "sums.json").write_text(json.dumps(ROWS), "utf-8")

    def rows(seed: int) -> Iterator[Any]:
        yield from ROWS[seed:]
        yield "one more"

    sources = [
        task_set("sums", ROWS),
        load_task_set(lines),
        load_task_set(tmp_path / "sums.json"),
        generated_task_set(rows, name="sums", count=3, seed=0),
    ]
    assert len({source.digest for source in sources}) == 1
    assert [task.id for task in sources[1].tasks] == ["one", "two", "three"]
    assert sources[1][1] == {"a": 2, "b": 1}


def test_parquet_and_hugging_face_give_rows(tmp_path: Path) -> None:
    rows = [{"question": f"{n} + {n}", "answer": 2 * n} for n in range(5)]
    file = tmp_path / "sums.parquet"
    rows_sql = "SELECT range || ' + ' || range AS question, 2 * range AS answer FROM range(5)"
    with duckdb.connect() as connection:  # the module's own is every test's
        connection.sql(rows_sql).write_parquet(str(file))
    plain = task_set("sums", rows)
    assert load_task_set(file).digest == plain.digest
    theirs = datasets.Dataset.from_list(rows)
    assert task_set_of(theirs, name="sums").digest == plain.digest
    parts = task_set_of(datasets.DatasetDict({"train": theirs, "test": theirs}), name="sums")
    assert (parts.splits, len(parts), len(parts.split("test"))) == (["test", "train"], 10, 5)


def test_a_folder_has_a_split_for_each_file_of_tasks_and_each_folder(tmp_path: Path) -> None:
    folder = tmp_path / "sums"
    (folder / "validation").mkdir(parents=True)
    (folder / "train.jsonl").write_text('"a"\n"b"\n', "utf-8")
    (folder / "validation" / "c.json").write_text('{"question": "c"}', "utf-8")
    (folder / "notes.txt").write_text("none of it", "utf-8")
    found = load_task_set(folder)
    assert [(task.id, task.input, task.split) for task in found.tasks] == [
        ("train/0", "a", "train"),
        ("train/1", "b", "train"),
        ("validation/c", {"question": "c"}, "validation"),
    ]


def test_a_file_that_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text('"secret"', "utf-8")
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "task.json").symlink_to(tmp_path / "secret.json")
    with pytest.raises(TrainingError, match="leads out of its folder"):
        load_task_set(folder)


@pytest.mark.parametrize(
    ("change", "changes_digest"),
    [
        (lambda row: row.update(input="1 + 2"), True),
        (lambda row: row["metadata"].update(answer=4), True),
        (lambda row: row.update(split="test"), True),
        (lambda row: row.update(id="other"), True),
        (lambda row: row.update(metadata=dict(reversed(row["metadata"].items()))), False),
    ],
    ids=["input", "metadata", "split", "id", "order of keys"],
)
def test_the_digest_changes_with_each_task(change: Callable[[Any], None], changes_digest: bool) -> None:
    rows = json.loads(json.dumps(ROWS))
    change(rows[0])
    assert (task_set("sums", rows).digest != task_set("sums", ROWS).digest) is changes_digest


def test_a_set_that_changed_is_another_data_set_of_a_run() -> None:
    before, now = task_set("sums", ROWS), task_set("sums", [*ROWS[:2], "another"])
    assert identity_of_dataset(before) == before.identity
    check_same_run("run", {"data_set": before.identity}, {"data_set": task_set("sums", ROWS).identity})
    with pytest.raises(TrainingError, match="begun with something else") as raised:
        check_same_run("run", {"data_set": before.identity}, {"data_set": now.identity})
    assert before.digest[:12] in str(raised.value)
    assert now.digest[:12] in str(raised.value)


def test_a_rollout_has_name_digest_and_id_of_its_task() -> None:
    sums = task_set("sums", ROWS)
    request = task_of(sums.split("train"), 1)
    assert request.input == {"a": 2, "b": 1}
    assert request.metadata == {
        "task": {
            "set": "sums",
            "digest": sums.digest,
            "id": "two",
            "split": "train",
            "metadata": {"answer": 3, "level": 1},
        }
    }


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([], "no tasks"),
        ([{"id": 1, "input": 1}, {"id": 1, "input": 2}], "two tasks of 'sums' have the id '1'"),
        ([{"input": float("nan")}], "task '0' of 'sums'.*no JSON number"),
        ([{"input": {1}}], "task '0' of 'sums'.*set is no JSON value"),
        ([{"input": 1, "metadata": "x"}], "no object"),
        ([{"input": 1, "answer": 2, "split": "train"}], "task 0 of 'sums' has answer beside its input.*in metadata"),
    ],
    ids=["empty", "same id", "nan", "a set", "metadata", "answer"],
)
def test_rows_that_are_no_tasks_are_named(rows: list[Any], problem: str) -> None:
    with pytest.raises(TrainingError, match=problem):
        task_set("sums", rows)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.jsonl", '"one"\n{"two"\n', "line 2 of .*a.jsonl is no JSON"),
        ("a.json", '"one"', "no list of tasks"),
        ("a.parquet", "no columns", "no Parquet file"),
        ("missing.jsonl", None, "cannot be read"),
    ],
    ids=["line", "no list", "parquet", "missing"],
)
def test_files_that_are_none_are_named(tmp_path: Path, name: str, content: str | None, problem: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content, "utf-8")
    with pytest.raises(TrainingError, match=problem):
        load_task_set(tmp_path / name)


def test_a_generator_that_ends_early_is_named() -> None:
    with pytest.raises(TrainingError, match="made 2 tasks with seed 5, and 3 are wanted"):
        generated_task_set(lambda seed: iter([seed, seed + 1]), name="few", count=3, seed=5)


def test_generated_tasks_follow_from_the_seed() -> None:
    def sums(seed: int) -> Iterator[str]:
        chance = random.Random(seed)
        while True:
            yield f"{chance.randrange(100)} + {chance.randrange(100)}"

    first, again, other = (generated_task_set(sums, name="sums", count=50, seed=seed) for seed in (1, 1, 2))
    assert first.digest == again.digest != other.digest


def test_splits_by_share_are_all_tasks_once() -> None:
    whole = task_set("numbers", list(range(100)))
    parted = whole.split_by(train=0.9, validation=0.1, seed=3)
    assert (len(parted.split("train")), len(parted.split("validation"))) == (90, 10)
    found = [parted.split(name)[index] for name in parted.splits for index in range(len(parted.split(name)))]
    assert sorted(found) == list(range(100))
    assert parted.digest == whole.split_by(train=0.9, validation=0.1, seed=3).digest != whole.digest
    with pytest.raises(TrainingError, match="sum of 1"):
        whole.split_by(train=0.9, validation=0.2)
    with pytest.raises(TrainingError, match=r"has no split 'dev'.*It has train, validation"):
        parted.split("dev")


def test_each_pass_has_every_task_as_often_as_it_is_repeated() -> None:
    tasks = task_set("numbers", list(range(10))).repeated(3)
    chosen = [index for step in range(1, 7) for index in tasks_of_step(tasks, wanted(step, 5, seed=1))]
    assert Counter(chosen) == dict.fromkeys(range(10), 3)
    assert tasks_of_step(tasks, wanted(2, 5, seed=1)) == chosen[5:10], "a restart asks for the same"


def test_a_curriculum_is_a_first_pass_in_order() -> None:
    rows: list[Any] = [{"input": n, "metadata": {"level": (7 * n) % 10}} for n in range(10)]
    tasks = task_set("numbers", rows).in_order_of("level")
    chosen = [index for step in range(1, 7) for index in tasks_of_step(tasks, wanted(step, 4, seed=1))]
    assert [rows[index]["metadata"]["level"] for index in chosen[:10]] == list(range(10))
    later = [
        index for step in range(4, 7) for index in tasks_of_step(task_set("numbers", rows), wanted(step, 4, seed=1))
    ]
    assert chosen[12:] == later, "later passes are as those of a set without a curriculum"
    with pytest.raises(TrainingError, match="has no number 'age'"):
        tasks.in_order_of("age")


def test_parts_choose_as_the_whole_does() -> None:
    rows: list[Any] = [
        {"input": n, "metadata": {"level": (7 * n) % 10}, "split": "train" if n % 2 else "test"} for n in range(10)
    ]
    levels = [rows[n]["metadata"]["level"] for n in range(10) if n % 2]
    whole = task_set("numbers", rows)
    ordered = whole.in_order_of("level").split("train")
    chosen = tasks_of_step(ordered, wanted(1, 5))
    assert [ordered.tasks[index].metadata["level"] for index in chosen] == sorted(levels)
    for thrice in (whole.repeated(3).take(4), whole.repeated(3).split_by(train=0.4, test=0.6).split("train")):
        passes = [index for step in range(1, 4) for index in tasks_of_step(thrice, wanted(step, 4, seed=1))]
        assert passes != [
            index for step in range(1, 4) for index in tasks_of_step(whole.take(4), wanted(step, 4, seed=1))
        ]
        assert Counter(passes) == dict.fromkeys(range(4), 3)
    with pytest.raises(TrainingError, match="has a choice of tasks already"):
        whole.repeated(3).in_order_of("level")


def test_files_of_hugging_face_are_splits(tmp_path: Path) -> None:
    data = tmp_path / "sums" / "data"
    data.mkdir(parents=True)
    for name in ("train-00000-of-00002", "train-00001-of-00002", "test-0000"):
        (data / f"{name}.jsonl").write_text('"a"\n"b"\n', "utf-8")
    found = load_task_set(tmp_path / "sums")
    assert {name: len(found.split(name)) for name in found.splits} == {"test": 2, "train": 4}
    (data / "one.jsonl").write_text('"c"\n', "utf-8")
    assert load_task_set(tmp_path / "sums").splits == ["data", "test", "train"]
    (tmp_path / "sums" / "test").mkdir()
    (tmp_path / "sums" / "test" / "train.jsonl").write_text('"c"\n', "utf-8")
    with pytest.raises(TrainingError, match=r"train\.jsonl is named as two splits, test and train"):
        load_task_set(tmp_path / "sums")


def test_single_tasks_beside_a_split_are_of_train(tmp_path: Path) -> None:
    (tmp_path / "validation").mkdir()
    for name in ("a", "b", "validation/c"):
        (tmp_path / f"{name}.json").write_text('{"question": "?"}', "utf-8")
    found = load_task_set(tmp_path)
    assert [(task.id, task.split) for task in found.tasks] == [
        ("a", "train"),
        ("b", "train"),
        ("validation/c", "validation"),
    ]


def test_a_choice_of_tasks_that_there_are_not_is_named() -> None:
    tasks = TaskSet("few", [Task("0", "a")])
    with pytest.raises(TrainingError, match=r"chose \[1\] for step 1"):
        tasks_of_step(tasks.chosen_by(lambda _tasks, _wanted: [1]), wanted(1, 1))
