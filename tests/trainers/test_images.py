"""Models that look at images: transformers' own numbers, learning what an image shows, calls that cannot be shown."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor

from lightstream.schemas.errors import TrainingError
from lightstream.schemas.packing import unpack_int32
from lightstream.schemas.records import StepOutcome, Trajectory, TripletRecord
from lightstream.trainers import VERL, train_recorded
from lightstream.trainers.algorithms.recorded import write_recording
from lightstream.trainers.engines.verl.engine import VerlEngine
from lightstream.trainers.engines.verl.images import image_reader
from lightstream.trainers.engines.verl.initial import write_initial_model
from lightstream.trainers.engines.verl.primitives import PrimitiveEngine
from lightstream.trainers.rollouts.batch import BatchArrays, Exclusion, build_arrays, select_rows
from lightstream.trainers.rollouts.groups import Group
from tests.support.checkpoints import checkpoint_in

from .support.seeing import SeeingModel, make_seeing_model, picture
from .support.trajectories import make_trajectory, make_triplet

RED, BLUE, WIDE = picture("red"), picture("blue", form="JPEG"), picture("green", 24, 8)
KINDS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: make_seeing_model(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}


def options(model: Path, **changes: Any) -> VERL:
    base: dict[str, Any] = {"model": model, "steps": 20, "weight_decay": 0.0, "threads": 1, "device": "cpu"}
    return VERL(**(base | changes))


def user(text: str, images: int) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}, *[{"type": "image"}] * images]}


def call(model: SeeingModel, prompt: list[int], response: list[int], numbers: Sequence[int], files: Any) -> Any:
    """A call as the model itself would have sampled it."""
    with torch.no_grad():
        said = model.logprobs(prompt + response, [files[n] for n in numbers])[len(prompt) - 1 :]
    chosen = said.gather(-1, torch.tensor(response)[:, None]).flatten().tolist()
    return make_triplet(prompt, response, chosen).model_copy(update={"images": list(numbers), "model": "run@0"})


def rollout(name: str, calls: Sequence[TripletRecord], files: Sequence[bytes], reward: float, **of: Any) -> Trajectory:
    numbered = [triplet.model_copy(update={"call_index": i, "reward": reward}) for i, triplet in enumerate(calls)]
    where: dict[str, Any] = {"group_id": "g", "group_size": 4} | of
    made = make_trajectory(name, reward=reward, triplets=numbered, **where)
    return made.model_copy(update={"images": list(files)})


def mixed_group(model: SeeingModel) -> Group:
    """No image, one, two, and a conversation that goes on with a second one: merged into one row."""

    def first(text: str, numbers: Sequence[int], files: Sequence[bytes], response: list[int]) -> Any:
        prompt = model.prompt([user(text, len(numbers))], [files[n] for n in numbers])
        return call(model, prompt, response, numbers, files)

    files = [RED, WIDE]
    begun = first("look", [0], files, [60, 61])
    asked_on = model.prompt([user("and", 1)], [WIDE])
    whole = unpack_int32(begun.prompt_token_ids + begun.response_token_ids).tolist()
    goes_on = call(model, whole + asked_on, [70, 71, 72], [0, 1], files)
    members = [
        rollout("none", [first("say", [], [], [80, 81, 82])], [], 1.0),
        rollout("one", [first("what", [0], [BLUE], [90])], [BLUE], 0.0),
        rollout("two", [first("which", [1, 0], files, [91, 92])], files, 0.5),
        rollout("more", [begun, goes_on], files, 2.0),
    ]
    return Group("g", tuple(members))


def whole(tensor: Any) -> Any:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def reference_gradients(model: SeeingModel, group: Group, arrays: BatchArrays) -> dict[str, Any]:
    """The gradient of minus the mean of advantage times log-probability, call by call, each shown anew."""
    advantages = [float(arrays.advantages[arrays.row_of_token == row][0]) for row in range(len(arrays))]
    model.model.zero_grad()
    tokens = int(arrays.response_mask.sum())
    for trajectory, advantage in zip(group.trajectories, advantages, strict=True):
        for triplet in trajectory.triplets:
            prompt, response = (
                unpack_int32(b).tolist() for b in (triplet.prompt_token_ids, triplet.response_token_ids)
            )
            said = model.logprobs(prompt + response, [trajectory.images[n] for n in triplet.images])
            chosen = said[len(prompt) - 1 :].gather(-1, torch.tensor(response)[:, None])
            (-advantage * chosen.sum() / tokens).backward()
    return {name: parameter.grad for name, parameter in model.model.named_parameters()}


@pytest.mark.parametrize("kind", KINDS)
def test_log_probabilities_and_gradients_are_those_of_transformers(models: dict[str, Path], kind: str) -> None:
    model = SeeingModel(models[kind])
    group = mixed_group(model)
    engine = PrimitiveEngine(options(models[kind], tokens_per_micro_batch=40), models[kind])
    rows = select_rows([group], images=engine.images)
    assert not rows.excluded
    assert [len(row.images) for row in rows.rows] == [0, 1, 2, 2]
    arrays = build_arrays(rows)
    metrics = engine.forward_backward(arrays, loss="gpg", policy_version=0, seed=(0,))
    assert metrics["logprob_diff_max"] < 1e-5
    expected = reference_gradients(model, group, arrays)
    gradients = {name: whole(parameter.grad) for name, parameter in engine.module.named_parameters()}
    assert gradients.keys() == expected.keys()
    largest = max(float(gradient.abs().max()) for gradient in expected.values() if gradient is not None)
    assert largest > 1e-3
    assert any(expected[name].abs().max() > 1e-5 for name in expected if "visual" in name), "the image matters"
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-5)


def test_without_images_every_parameter_has_a_gradient_all_the_same(models: dict[str, Path]) -> None:
    folder = models["qwen3_vl"]
    group = mixed_group(SeeingModel(folder))
    alone = [group.trajectories[0], group.trajectories[0].model_copy(update={"rollout_id": "other", "reward": 0.0})]
    engine = PrimitiveEngine(options(folder), folder)
    arrays = build_arrays(select_rows([Group("g", tuple(alone))], images=engine.images))
    assert engine.forward_backward(arrays, loss="gpg", policy_version=0, seed=(0,))["logprob_diff_max"] < 1e-5
    of_vision = [p.grad for name, p in engine.module.named_parameters() if "visual" in name]
    assert all(gradient is not None and not whole(gradient).any() for gradient in of_vision)


def chances(model: SeeingModel, prompt: list[int], image: bytes) -> Any:
    with torch.no_grad():
        return model.logprobs([*prompt, 0], [image])[-1].exp()


def test_it_learns_what_an_image_shows_and_goes_on_from_a_checkpoint(models: dict[str, Path], tmp_path: Path) -> None:
    """The prompts have the same tokens, so that nothing but the image tells which answer is rewarded."""
    folder = models["qwen2_vl"]
    model = SeeingModel(folder)
    prompt = model.prompt([user("colour?", 1)], [RED])
    answers = {RED: 100, BLUE: 120}
    assert prompt == model.prompt([user("colour?", 1)], [BLUE])
    before = {image: float(chances(model, prompt, image)[token]) for image, token in answers.items()}
    config = options(folder, learning_rate=1e-2)
    engine = VerlEngine(config, folder)

    def step(number: int) -> None:
        nonlocal engine
        groups = [
            Group(
                name,
                tuple(
                    rollout(
                        f"{name}{token}", [call(model, prompt, [token], [0], [image])], [image], float(token == right)
                    )
                    for token in answers.values()
                ),
            )
            for name, (image, right) in zip("ab", answers.items(), strict=True)
        ]
        metrics = engine.update(build_arrays(select_rows(groups, images=engine.images)), seed=(0, number))
        assert metrics["logprob_diff_max"] < 1e-4
        model.model.load_state_dict({n: whole(p).detach() for n, p in engine.module.state_dict().items()})

    for number in range(1, 9):
        step(number)
    saved = tmp_path / "saved"
    saved.mkdir()
    engine.save(saved)
    step(9)
    expected = {name: whole(p).detach().clone() for name, p in engine.module.state_dict().items()}
    model, engine = SeeingModel(saved), VerlEngine(config, saved, first=folder)
    step(9)
    assert all(torch.equal(whole(p), expected[name]) for name, p in engine.module.state_dict().items())
    for image, token in answers.items():
        assert float(chances(model, prompt, image)[token]) > max(0.5, 5 * before[image])


def test_calls_that_cannot_be_shown_again_have_a_reason(models: dict[str, Path]) -> None:
    folder = models["qwen2_vl"]
    model, reader = SeeingModel(folder), image_reader(folder)
    assert reader is not None
    prompt = model.prompt([user("colour?", 1)], [RED])
    image, video = model.image_token, int(model.model.config.video_token_id)
    twice = [token for token in prompt for _ in range(1 + (token == image))]

    def fault(ids: list[int], *images: bytes, response: Sequence[int] = (100,)) -> Exclusion | None:
        return reader.fault(make_triplet(ids, response), images)

    assert fault(prompt, RED) is None
    assert fault(prompt, BLUE) is None, "as many pixels, and another format"
    assert fault([1, 2, 3]) is None
    assert fault(prompt, b"no image") is Exclusion.BAD_IMAGE
    assert fault(prompt, RED[:45]) is Exclusion.BAD_IMAGE
    assert fault(prompt, b"") is Exclusion.BAD_IMAGE
    assert fault(prompt, picture("red", 1000, 2)) is Exclusion.BAD_IMAGE, "too long and narrow for the model"
    assert fault(prompt) is Exclusion.IMAGES_MISMATCH, "it was not recorded"
    assert fault([1, 2, 3], RED) is Exclusion.IMAGES_MISMATCH, "the server left it out"
    assert fault(prompt, RED, RED) is Exclusion.IMAGES_MISMATCH
    assert fault(twice, RED) is Exclusion.IMAGES_MISMATCH, "the server had it in another size"
    assert fault([*twice, *prompt], RED, RED) is Exclusion.IMAGES_MISMATCH
    assert fault([*prompt, video], RED) is Exclusion.IMAGES_MISMATCH
    assert fault(prompt, RED, response=[image]) is Exclusion.IMAGES_MISMATCH


def test_a_trajectory_without_the_images_that_its_calls_name_is_left_out() -> None:
    named = make_triplet([1], [2]).model_copy(update={"images": [1]})
    rows = select_rows(
        [Group("g", (rollout("a", [named], [RED], 1.0), rollout("b", [make_triplet([1], [2])], [], 0.0)))]
    )
    assert rows.excluded == {Exclusion.IMAGES_MISMATCH: 1}


def test_a_recorded_step_makes_weights_for_servers_and_counts_what_it_left_out(
    models: dict[str, Path], tmp_path: Path
) -> None:
    folder = models["qwen2_vl"]
    model = SeeingModel(folder)
    prompt = model.prompt([user("colour?", 1)], [RED])
    good = [call(model, prompt, [token], [0], [RED]) for token in (100, 120)]
    members = [
        ("run-s1-g0-0", good[0], [RED], 1.0),
        ("run-s1-g0-1", good[1], [RED], 0.0),
        ("run-s1-g0-2", good[0], [b"no image"], 1.0),
        ("run-s1-g0-3", good[0], [WIDE], 0.0),
    ]
    recorded = [
        rollout(name, [triplet], files, reward, run_id="run", group_id="run-s1-g0")
        for name, triplet, files, reward in members
    ]
    assert write_recording(recorded, tmp_path / "run.jsonl") == 4
    algorithm = options(
        folder, steps=1, tasks_per_step=1, rollouts_per_task=4, learning_rate=1e-2, logprob_gap_max=math.inf
    )
    ledger = train_recorded(algorithm, tmp_path / "run.jsonl", tmp_path / "out", seed=5)
    (step,) = ledger.steps
    assert step.outcome is StepOutcome.UPDATED
    assert {c.rollout_id[-1]: dict(c.not_trained) for c in step.consumed} == {
        "0": {},
        "1": {},
        "2": {"bad_image": 1},
        "3": {"images_mismatch": 1},
    }
    written = checkpoint_in(tmp_path / "out", step.checkpoint_url)
    assert {"config.json", "preprocessor_config.json", "tokenizer.json"} <= {file.name for file in written.iterdir()}
    learned, right = SeeingModel(written), good[0]
    token = int(unpack_int32(right.response_token_ids)[0])
    assert chances(learned, prompt, RED)[token] > chances(model, prompt, RED)[token]


def test_models_that_cannot_be_trained_are_named(models: dict[str, Path], tmp_path: Path) -> None:
    for name in ("without", "other", "text"):
        (tmp_path / name).mkdir()
    for file in models["qwen2_vl"].iterdir():
        if file.name != "preprocessor_config.json":
            (tmp_path / "without" / file.name).symlink_to(file)
    with pytest.raises(TrainingError, match=r"has no preprocessor_config\.json that says how"):
        write_initial_model(options(tmp_path / "without"), tmp_path, seed=0)
    (tmp_path / "other" / "config.json").write_text(json.dumps({"model_type": "gemma3"}), "utf-8")
    with pytest.raises(TrainingError, match="looks at images, and a gemma3 is not trained") as caught:
        write_initial_model(options(tmp_path / "other"), tmp_path, seed=0)
    assert "Qwen2-VL" in str(caught.value)
    (tmp_path / "text" / "config.json").write_text(json.dumps({"model_type": "qwen2"}), "utf-8")
    assert image_reader(tmp_path / "text") is None
    with pytest.raises(TrainingError, match="has no model that gives a value for each token"):
        VerlEngine(options(models["qwen2_vl"], advantage="gae"), models["qwen2_vl"])
