"""verl in this process: it learns, it says how far it is from the sampler, and it resumes to the bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightstream.trainers import make_tiny_model, teach_answers
from lightstream.trainers.batch import BatchArrays, build_arrays, select_rows
from lightstream.trainers.groups import Group
from lightstream.trainers.verl_in_process import VERL
from lightstream.trainers.verl_in_process.advantage import row_advantages
from lightstream.trainers.verl_in_process.engine import VerlEngine
from lightstream.trainers.verl_in_process.initial import write_initial_model
from lightstream.trainers.verl_in_process.tensors import select_mini_batches

from .support.digits import DigitTask
from .support.trajectories import make_trajectory, make_triplet, random_trajectory

MAX_DIFFERENCE = 1e-3


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"))


def options(model: Path, **changes: Any) -> VERL:
    base: dict[str, Any] = {"model": model, "steps": 20, "learning_rate": 3e-3, "weight_decay": 0.0, "threads": 1}
    return VERL(**(base | changes))


def arrays_of(groups: list[Group]) -> BatchArrays:
    return build_arrays(select_rows(groups).rows)


def random_groups(step: int, groups: int = 3, size: int = 4) -> list[Group]:
    return [
        Group(
            f"s{step}-g{g}",
            tuple(
                random_trajectory(
                    f"s{step}-g{g}-{i}", group_id=f"s{step}-g{g}", group_size=size, run_id="run", policy_version=0
                )
                for i in range(size)
            ),
        )
        for g in range(groups)
    ]


def mean_reward(groups: list[Group]) -> float:
    return float(np.mean([t.reward or 0.0 for group in groups for t in group.trajectories]))


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def save(engine: VerlEngine, folder: Path) -> Path:
    folder.mkdir()
    engine.save(folder)
    engine.saved_in(folder)
    return folder


def test_it_learns_the_digits(tiny_model: Path, tmp_path: Path) -> None:
    engine = VerlEngine(options(tiny_model, learning_rate=1.5e-2), tiny_model)
    folder, task = tiny_model, DigitTask(tiny_model)
    rewards: list[float] = []
    for step in range(1, 17):
        groups = task.roll_out(folder, step=step)
        metrics = engine.update(arrays_of(groups), seed=step)
        assert metrics["logprob_diff_max"] < MAX_DIFFERENCE
        folder = save(engine, tmp_path / str(step))
        rewards.append(mean_reward(groups))
    assert np.mean(rewards[:3]) < 0.2, "ten digits among 264 tokens"
    assert np.mean(rewards[-3:]) > 0.7


def test_a_warm_up_teaches_the_form_of_an_answer(tiny_model: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    prompts = [f"say {d}" for d in range(10)]
    config = options(tiny_model, warm_up=teach_answers(prompts, [*"0123456789"], steps=20))
    write_initial_model(config, tmp_path, seed=0)
    assert mean_reward(DigitTask(tmp_path).roll_out(tmp_path, step=1, groups=2)) >= 0.4, (
        "a digit, then the end of the turn"
    )
    first: Any = AutoModelForCausalLM.from_pretrained(tmp_path)
    (again := tmp_path / "again").mkdir()
    write_initial_model(config, again, seed=0)
    second: Any = AutoModelForCausalLM.from_pretrained(again)
    assert all((a == b).all() for a, b in zip(first.parameters(), second.parameters(), strict=True)), "repeatable"


def test_a_resumed_engine_goes_on_to_the_bit(tiny_model: Path, tmp_path: Path) -> None:
    config = options(tiny_model)
    whole = VerlEngine(config, tiny_model)
    for step in (1, 2, 3):
        whole.update(arrays_of(random_groups(step)), seed=step)
        if step == 2:
            save(whole, tmp_path / "two")
    expected = save(whole, tmp_path / "three")
    resumed = VerlEngine(config, tmp_path / "two")
    resumed.update(arrays_of(random_groups(3)), seed=3)
    got = save(resumed, tmp_path / "resumed")
    assert weights(got) == weights(expected)
    assert (got / "optimizer.safetensors").read_bytes() == (expected / "optimizer.safetensors").read_bytes()
    assert json.loads((got / "trainer.json").read_text()) == json.loads((expected / "trainer.json").read_text())


def test_a_checkpoint_is_a_model_for_everyone(tiny_model: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    engine = VerlEngine(options(tiny_model), tiny_model)
    folder = save(engine, tmp_path / "checkpoint")
    loaded: Any = AutoModelForCausalLM.from_pretrained(folder)
    load_tokenizer: Any = AutoTokenizer.from_pretrained
    assert load_tokenizer(folder).chat_template
    original: Any = AutoModelForCausalLM.from_pretrained(tiny_model)
    for name, parameter in original.named_parameters():
        assert (dict(loaded.named_parameters())[name] == parameter).all(), name


def test_stale_rows_are_not_compared(tiny_model: Path) -> None:
    engine = VerlEngine(options(tiny_model), tiny_model)
    arrays = arrays_of(random_groups(1))
    metrics = engine.update(arrays, compared=np.zeros(len(arrays), np.bool_))
    assert np.isnan(metrics["logprob_diff_max"])
    assert np.isfinite(metrics["grad_norm"])


def test_several_mini_batches_are_compared_before_the_first_update(tiny_model: Path, tmp_path: Path) -> None:
    groups = DigitTask(tiny_model).roll_out(tiny_model, step=1)
    engine = VerlEngine(options(tiny_model, mini_batches_per_step=3, epochs_per_step=2), tiny_model)
    metrics = engine.update(arrays_of(groups))
    assert metrics["logprob_diff_max"] < MAX_DIFFERENCE
    assert json.loads((save(engine, tmp_path / "c") / "trainer.json").read_text())["scheduler"]["last_epoch"] == 1


def test_a_row_longer_than_a_micro_batch_still_fits(tiny_model: Path) -> None:
    engine = VerlEngine(options(tiny_model, tokens_per_micro_batch=16), tiny_model)
    long = make_trajectory("g-0", triplets=[make_triplet(list(range(3, 43)), [5, 6])])
    short = make_trajectory("g-1", reward=0.0, triplets=[make_triplet([5], [6], reward=0.0)])
    assert np.isfinite(engine.update(arrays_of([Group("g", (long, short))]))["grad_norm"])


def test_advantages_are_verls() -> None:
    def group(name: str, rewards: list[float]) -> Group:
        members = [
            make_trajectory(f"{name}-{i}", reward=r, triplets=[make_triplet([1], [2, 3], reward=r)])
            for i, r in enumerate(rewards)
        ]
        return Group(name, tuple(members))

    arrays = arrays_of([group("mixed", [1.0, 0.0]), group("uniform", [1.0, 1.0]), group("alone", [0.5])])
    deviation = np.std([1.0, 0.0], ddof=1)
    expected = np.array([0.5 / deviation, -0.5 / deviation, 0.0, 0.0, 0.5])
    np.testing.assert_allclose(row_advantages(arrays, "grpo"), expected, atol=1e-5)
    np.testing.assert_allclose(row_advantages(arrays, "dr_grpo"), np.array([0.5, -0.5, 0, 0, 0.5]), atol=1e-6)


@pytest.mark.parametrize(("rows", "parts"), [(0, 3), (1, 3), (7, 3), (8, 1), (64, 4)])
def test_mini_batches_hold_every_row_once(rows: int, parts: int) -> None:
    batches = select_mini_batches(rows, parts, seed=5)
    assert sorted(row for batch in batches for row in batch) == list(range(rows))
    assert all(batches)
    assert max(map(len, batches), default=0) - min(map(len, batches), default=0) <= 1
