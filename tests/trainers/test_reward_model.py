"""Rewards by a reward model: its scores, what is learned from them, and the same again from the log."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer, LlamaForSequenceClassification

from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError, TrainingError
from lightstream.schemas.packing import unpack_int32
from lightstream.schemas.records import RewardRecord, StepOutcome, TrainingStep, Trajectory
from lightstream.schemas.topics import TRAINING_STEPS
from lightstream.trainers import VERL, Trainer, make_tiny_model, train_recorded
from lightstream.trainers.algorithms.recorded import write_recording
from lightstream.trainers.algorithms.replaying import replay_training
from lightstream.trainers.engines.verl.reward_model import RewardModel
from lightstream.trainers.ledger.reading import read_topic

from .support.instant_store import InstantStore
from .support.trajectories import make_trajectory, make_triplet
from .test_recorded import SIZE, contents, published_trajectories, recorded_steps, verl_of


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def reward_model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_reward_model(tiny_model, tmp_path_factory.mktemp("reward"))


def new_reward_model(like: Path, folder: Path, **changes: Any) -> Path:
    """A model of this kind with weights of its own, that says one value."""
    config: Any = AutoConfig.from_pretrained(like)
    config.update({"num_labels": 1} | changes)
    torch.manual_seed(7)
    untyped: Any = LlamaForSequenceClassification
    model = untyped(config)
    model.score.weight.data.normal_(0, 1)
    model.save_pretrained(folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(like)
    tokenizer.save_pretrained(folder)
    return folder


def reference_score(folder: Path, trajectory: Trajectory) -> float:
    """Head times the last hidden state, of all tokens of the last call."""
    model: Any = AutoModelForSequenceClassification.from_pretrained(folder)
    call = trajectory.triplets[-1]
    ids = [*unpack_int32(call.prompt_token_ids), *unpack_int32(call.response_token_ids)]
    with torch.no_grad():
        hidden: Any = model.model(input_ids=torch.tensor([ids])).last_hidden_state[0, -1]
        return float(hidden @ model.score.weight[0])


def mean_rewards(steps: Sequence[TrainingStep]) -> list[float]:
    return [step.metrics["reward/mean"] for step in steps]


def test_a_score_is_that_of_the_last_calls_last_token(tiny_model: Path, reward_model: Path) -> None:
    model = RewardModel(reward_model, tiny_model, device="cpu")
    recorded = recorded_steps(2)
    scores = [model.score(trajectory) for trajectory in recorded]
    assert scores == pytest.approx([reference_score(reward_model, t) for t in recorded], abs=1e-5)
    assert len(set(scores)) > SIZE
    assert [model.score(trajectory) for trajectory in reversed(recorded)] == scores[::-1], "each for itself"
    padding: Any = AutoTokenizer.from_pretrained(reward_model)
    ending = make_trajectory("ends with padding", triplets=[make_triplet([1, 2], [5, padding.pad_token_id])])
    assert model.score(ending) == pytest.approx(reference_score(reward_model, ending), abs=1e-5)


def test_what_it_cannot_read_has_no_score(tiny_model: Path, reward_model: Path) -> None:
    model = RewardModel(reward_model, tiny_model, device="cpu")
    longest = AutoConfig.from_pretrained(reward_model).max_position_embeddings
    assert model.score(make_trajectory("no calls", triplets=[])) is None
    assert model.score(make_trajectory("fits", triplets=[make_triplet([1] * (longest - 1), [2])])) is not None
    assert model.score(make_trajectory("too long", triplets=[make_triplet([1] * longest, [2])])) is None


def test_a_run_learns_from_its_scores_and_can_be_made_again(
    settings: Settings, tiny_model: Path, reward_model: Path, tmp_path: Path
) -> None:
    settings = settings.model_copy(update={"proxy_url": "http://127.0.0.1:9"})  # nobody calls it
    algorithm = verl_of(tiny_model, reward_model=reward_model)
    store = InstantStore(settings)
    for steps in (2, 3):  # a second trainer goes on from the last checkpoint, and makes the steps since again
        Trainer(
            algorithm=verl_of(tiny_model, reward_model=reward_model, steps=steps),
            n_runners=0,
            settings=settings,
            store=store,
            trainer_id="run",
            seed=5,
            progress=False,
        ).fit(None, ["task"])
    asyncio.run(store.close())
    records = read_topic(settings, TRAINING_STEPS, codec_for(settings), group_id="t")
    steps_made = [r for _, r in records if isinstance(r, TrainingStep)]
    assert [step.outcome for step in steps_made] == [StepOutcome.UPDATED] * 3
    published = published_trajectories(settings)
    expected = [
        fmean(reference_score(reward_model, t) for t in published if t.rollout_id.startswith(f"run-s{step}-"))
        for step in (1, 2, 3)
    ]
    assert mean_rewards(steps_made) == pytest.approx(expected, abs=1e-5)

    replayed = replay_training(settings, "run", tmp_path / "replayed")
    assert (replayed.steps, replayed.differing, replayed.other_weights) == ([1, 2, 3], {}, [])
    write_recording(published, tmp_path / "run.jsonl")
    again = train_recorded(algorithm, tmp_path / "run.jsonl", tmp_path / "again", seed=5)
    weights = contents(settings.data_dir, [step.checkpoint_url for step in steps_made])
    assert contents(tmp_path / "again", [step.checkpoint_url for step in again.steps]) == weights
    without = train_recorded(verl_of(tiny_model), tmp_path / "run.jsonl", tmp_path / "without", seed=5)
    assert contents(tmp_path / "without", [step.checkpoint_url for step in without.steps])[-1] != weights[-1]


def test_agents_that_give_no_reward_can_be_trained(tiny_model: Path, reward_model: Path, tmp_path: Path) -> None:
    without = [t.model_copy(update={"reward": None, "rewards": []}) for t in recorded_steps(1)]
    silent, spoken = without[0], without[1]
    silent = silent.model_copy(update={"triplets": []})
    write_recording([silent, spoken, *without[2:]], tmp_path / "run.jsonl")
    verl = verl_of(tiny_model, reward_model=reward_model, steps=1)
    (step,) = train_recorded(verl, tmp_path / "run.jsonl", tmp_path / "out").steps
    assert step.outcome is StepOutcome.UPDATED
    not_trained = {c.rollout_id: c.not_trained for c in step.consumed}
    assert not_trained[silent.rollout_id] == {"no_calls": 1}
    assert not any("no_reward" in reasons for reasons in not_trained.values())
    scores = [reference_score(reward_model, t) for t in [spoken, *without[2:]]]
    assert mean_rewards([step]) == pytest.approx([fmean(scores)], abs=1e-5)


def test_dimensions_weigh_it_beside_rewards_of_the_agent(tiny_model: Path, reward_model: Path, tmp_path: Path) -> None:
    short = [
        t.model_copy(update={"rewards": [RewardRecord(name="short", value=float(i % 2), span_id="0" * 16)]})
        for i, t in enumerate(recorded_steps(1))
    ]
    write_recording(short, tmp_path / "run.jsonl")
    weights = {}
    for name, dimensions in (
        ("both", {"reward_model": 1.0, "short": 1.0}),
        ("model", {"reward_model": 1.0}),
        ("agent", {"short": 1.0}),
    ):
        verl = verl_of(tiny_model, reward_model=reward_model, steps=1, reward_dimensions=dimensions)
        (step,) = train_recorded(verl, tmp_path / "run.jsonl", tmp_path / name).steps
        assert step.outcome is StepOutcome.UPDATED
        weights[name] = contents(tmp_path / name, [step.checkpoint_url])[0]
    assert len(set(weights.values())) == 3


def test_a_model_that_is_none_is_refused_by_name(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"is no reward model: it lacks score\.weight"):
        RewardModel(tiny_model, tiny_model, device="cpu")
    two = new_reward_model(tiny_model, tmp_path / "two", num_labels=2)
    with pytest.raises(TrainingError, match=r"two' is no reward model: it has 2 labels"):
        RewardModel(two, tiny_model, device="cpu")
    other = new_reward_model(tiny_model, tmp_path / "other")
    tokenizer: Any = AutoTokenizer.from_pretrained(other)
    text = (other / "tokenizer.json").read_text("utf-8")
    first, second = (json_of(token) for token in tokenizer.convert_ids_to_tokens([20, 21]))
    swapped = text.replace(f"{first}: 20", f"{first}: 21").replace(f"{second}: 21", f"{second}: 20")
    assert swapped != text
    (other / "tokenizer.json").write_text(swapped, "utf-8")
    with pytest.raises(TrainingError, match=r"another vocabulary than .*: 2 tokens of the policy's have other numbers"):
        RewardModel(other, tiny_model, device="cpu")
    with pytest.raises(SettingsError, match="advantage_per is 'turn', while a reward_model gives"):
        verl_of(tiny_model, reward_model=other, advantage_per="turn")


def json_of(token: str) -> str:
    return json.dumps(token, ensure_ascii=False)


def test_verls_keys_name_it() -> None:
    model = {"actor_rollout_ref": {"model": {"path": "a/policy"}}, "trainer": {"total_training_steps": 1}}
    newer = {"reward": {"reward_model": {"enable": True, "model_path": "a/reward"}}}
    older = {"reward_model": {"enable": True, "model": {"path": "a/reward"}}}
    off = {"reward": {"reward_model": {"enable": False, "model_path": "a/reward"}}}
    assert VERL(config=model | newer).reward_model == VERL(config=model | older).reward_model == "a/reward"
    assert VERL(config=model | off).reward_model is None
    with pytest.raises(SettingsError, match=r"reward\.reward_model\.model_path is not given"):
        VERL(config=model | {"reward.reward_model.enable": True})
    with pytest.raises(SettingsError, match=r"enable_resource_pool=True: the reward model runs in the trainer's"):
        VERL(config=model | newer | {"reward.reward_model.enable_resource_pool": True})


def test_a_score_that_is_no_number_is_named(tiny_model: Path, tmp_path: Path) -> None:
    folder = new_reward_model(tiny_model, tmp_path / "nan")
    model: Any = AutoModelForSequenceClassification.from_pretrained(folder)
    model.score.weight.data.fill_(math.nan)
    model.save_pretrained(folder)
    write_recording(recorded_steps(1), tmp_path / "run.jsonl")
    verl = verl_of(tiny_model, reward_model=folder, steps=1, steps_without_signal_max=1)
    with pytest.raises(TrainingError, match="not_finite"):
        train_recorded(verl, tmp_path / "run.jsonl", tmp_path / "out")
