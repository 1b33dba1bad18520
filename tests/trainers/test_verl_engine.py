"""verl in this process: it learns, it says how far it is from the sampler, and it resumes to the bit."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.tensor import DTensor
from transformers import AutoTokenizer

from lightstream.schemas.errors import SettingsError, TrainingError
from lightstream.schemas.records import RolloutMode, Trajectory
from lightstream.trainers import RolloutCorrection, make_tiny_model, teach_answers
from lightstream.trainers.algorithms.verl import VERL
from lightstream.trainers.engines.verl.engine import VerlEngine
from lightstream.trainers.engines.verl.initial import write_initial_model
from lightstream.trainers.engines.verl.plan import select_mini_batches
from lightstream.trainers.loop.step import select_batch
from lightstream.trainers.loop.waves import StepGroups
from lightstream.trainers.rollouts.batch import BatchArrays, Scoring, build_arrays, group_advantages, select_rows
from lightstream.trainers.rollouts.groups import Group

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
    return build_arrays(select_rows(groups))


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
        arrays = arrays_of(groups)
        if len(arrays.rows_with_signal):
            assert engine.update(arrays, seed=(0, step))["logprob_diff_max"] < MAX_DIFFERENCE
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


def test_a_warm_up_teaches_each_prompt_its_own_answers(tiny_model: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    answers = {"say a": ["0", "1"], "say b": ["8", "9"]}
    config = options(tiny_model, warm_up=teach_answers([*answers], [*answers.values()], steps=100))
    write_initial_model(config, tmp_path, seed=0)
    model: Any = AutoModelForCausalLM.from_pretrained(tmp_path)
    tokenizer: Any = AutoTokenizer.from_pretrained(tmp_path)
    for prompt, expected in answers.items():
        messages = [{"role": "user", "content": prompt}]
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        chances = model(**ids).logits[0, -1].detach().softmax(-1)
        assert sum(float(chances[tokenizer.encode(text)[0]]) for text in expected) > 0.9, prompt
    with pytest.raises(ValueError, match="2 prompts, but 1 lists of answers"):
        teach_answers([*answers], [["0", "1"]])


def test_a_resumed_engine_goes_on_to_the_bit(tiny_model: Path, tmp_path: Path) -> None:
    config = options(tiny_model)
    whole = VerlEngine(config, tiny_model)
    for step in (1, 2, 3):
        whole.update(arrays_of(random_groups(step)), seed=(0, step))
        if step == 2:
            save(whole, tmp_path / "two")
    expected = save(whole, tmp_path / "three")
    resumed = VerlEngine(config, tmp_path / "two")
    resumed.update(arrays_of(random_groups(3)), seed=(0, 3))
    got = save(resumed, tmp_path / "resumed")
    assert weights(got) == weights(expected)
    assert (got / "optimizer.safetensors").read_bytes() == (expected / "optimizer.safetensors").read_bytes()
    assert json.loads((got / "trainer.json").read_text()) == json.loads((expected / "trainer.json").read_text())


def test_servers_get_weights_alone_in_the_type_that_the_actor_computes_in(tiny_model: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    engine = VerlEngine(options(tiny_model, dtype="bfloat16"), tiny_model)
    engine.update(arrays_of(random_groups(1)))
    (served := tmp_path / "served").mkdir()
    engine.save_weights(served)
    whole = save(engine, tmp_path / "whole")
    assert not (served / "optimizer.safetensors").exists()
    theirs, ours = load_file(served / "model.safetensors"), load_file(whole / "model.safetensors")
    assert theirs.keys() == ours.keys()
    assert all(theirs[name].dtype == torch.bfloat16 and ours[name].dtype == torch.float32 for name in ours)
    assert all(torch.equal(theirs[name], ours[name].bfloat16()) for name in ours)
    assert (served / "tokenizer.json").read_bytes() == (whole / "tokenizer.json").read_bytes()


def test_a_checkpoint_is_a_model_for_everyone(tiny_model: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

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
    metrics = engine.update(arrays, policy_version=7)
    assert np.isnan(metrics["logprob_diff_max"])
    assert np.isfinite(metrics["grad_norm"])


def sampled_by(groups: list[Group], shift: float) -> list[Group]:
    """The same calls by a sampler that thinks its tokens likelier by so much."""

    def shifted(trajectory: Trajectory) -> Trajectory:
        triplets = [
            triplet.model_copy(
                update={
                    "response_logprobs": (np.frombuffer(triplet.response_logprobs or b"", "<f4") + shift)
                    .astype("<f4")
                    .tobytes()
                }
            )
            for triplet in trajectory.triplets
        ]
        return trajectory.model_copy(update={"triplets": triplets})

    return [Group(group.group_id, tuple(map(shifted, group.trajectories))) for group in groups]


def test_what_the_current_policy_sampled_is_not_corrected(tiny_model: Path) -> None:
    groups = DigitTask(tiny_model, seed=3).roll_out(tiny_model, step=1)
    plain = VerlEngine(options(tiny_model), tiny_model).update(arrays_of(groups))
    correction = RolloutCorrection(rollout_rs="token_k1", rollout_rs_threshold="0.9_1.1")
    engine = VerlEngine(options(tiny_model, rollout_correction=correction), tiny_model)
    corrected = engine.update(arrays_of(groups))
    assert corrected["grad_norm"] == pytest.approx(plain["grad_norm"], rel=1e-4)
    assert corrected["logprob_diff_max"] == pytest.approx(plain["logprob_diff_max"], abs=1e-6)
    assert corrected["correction/ess"] == pytest.approx(1.0, abs=1e-4)
    assert corrected["correction/weight_max"] == pytest.approx(1.0, abs=1e-3)
    assert corrected["correction/rejected"] == 0


def test_the_ratio_is_clipped_around_the_policy_that_the_step_begins_with(tiny_model: Path) -> None:
    """A sampler that differs by e^0.5 would be clipped (0.2) by PPO's ratio: nothing of half the tokens is learned."""
    groups = sampled_by(DigitTask(tiny_model, seed=3).roll_out(tiny_model, step=1), -0.5)
    plain = VerlEngine(options(tiny_model), tiny_model).update(arrays_of(groups))
    engine = VerlEngine(options(tiny_model, rollout_correction=RolloutCorrection(rollout_is=None)), tiny_model)
    decoupled = engine.update(arrays_of(groups))
    assert plain["actor/pg_clipfrac"] > 0
    assert decoupled["actor/pg_clipfrac"] == 0
    assert decoupled["actor/ratio_max"] == pytest.approx(1.0, abs=1e-3)
    weighed = VerlEngine(options(tiny_model, steps_ahead=1), tiny_model).update(arrays_of(groups))
    assert weighed["correction/weight_mean"] == pytest.approx(np.exp(0.5), rel=1e-3), "corrected where steps run ahead"
    assert weighed["grad_norm"] == pytest.approx(float(np.exp(0.5)) * decoupled["grad_norm"], rel=1e-3)
    further = sampled_by(groups, -5.0)
    cut = VerlEngine(options(tiny_model, steps_ahead=1), tiny_model).update(arrays_of(further))
    assert cut["correction/weight_max"] == 2
    assert cut["correction/cut"] == pytest.approx(1.0)
    rejects = RolloutCorrection(rollout_rs="token_k1", rollout_rs_threshold="0.5_2")
    none = VerlEngine(options(tiny_model, rollout_correction=rejects), tiny_model).update(arrays_of(further))
    assert none["correction/rejected"] == 1
    assert none["grad_norm"] == 0


def logprobs_of(folder: Path, ids: list[int]) -> list[float]:
    """Of each token after the first, by transformers in float64."""
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids])).logits[0, :-1]
    return torch.log_softmax(logits, -1).gather(-1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()


def test_the_reference_stays_what_it_was_and_its_kl_is_taken_from_the_reward(tiny_model: Path, tmp_path: Path) -> None:
    config = options(tiny_model, kl_reward_coefficient=0.5, learning_rate=1e-2)
    engine = VerlEngine(config, tiny_model)
    engine.update(arrays_of(random_groups(1)))
    policy = save(engine, tmp_path / "one")
    group = DigitTask(tiny_model, seed=3).roll_out(policy, step=2)[0]
    batch = select_batch(config, StepGroups([group]), 1, engine)
    scores: list[float | None] = []
    for trajectory in group.trajectories:
        call = trajectory.triplets[0]
        prompt = np.frombuffer(call.prompt_token_ids, "<i4").tolist()
        ids = prompt + np.frombuffer(call.response_token_ids, "<i4").tolist()
        kl = np.subtract(logprobs_of(policy, ids), logprobs_of(tiny_model, ids))[len(prompt) - 1 :].sum()
        assert abs(kl) > 1e-3
        scores.append((trajectory.reward or 0.0) - 0.5 * kl)
    expected = group_advantages(scores, Scoring())
    assert [row.spans[0].advantage for row in batch.rows.rows] == pytest.approx(expected, abs=1e-3)
    per_call = options(tiny_model, kl_reward_coefficient=0.5, advantage_per="turn")
    of_calls = select_batch(per_call, StepGroups([group]), 1, engine).rows.rows
    assert [row.spans[0].advantage for row in of_calls] == pytest.approx(expected, abs=1e-3)


def test_the_kl_in_the_loss_holds_the_policy_near_its_reference(tiny_model: Path) -> None:
    """It is zero before the first update; then it grows, and the less the more it counts."""
    groups = DigitTask(tiny_model, seed=3).roll_out(tiny_model, step=1)
    found: list[float] = []
    for coefficient in (1e-6, 100.0):
        engine = VerlEngine(options(tiny_model, kl_loss_coefficient=coefficient, kl_loss_type="k2"), tiny_model)
        metrics = [engine.update(arrays_of(groups), seed=(step,)) for step in range(6)]
        assert metrics[0]["rows/computed"] == len(arrays_of(groups)), "those without an advantage too"
        assert metrics[0]["actor/kl_loss"] == pytest.approx(0.0, abs=1e-9)
        found.append(metrics[-1]["actor/kl_loss"])
    assert found[0] > 10 * found[1] > 0


def test_an_adapter_is_trained_alone_and_served_merged(tiny_model: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    engine = VerlEngine(options(tiny_model, lora_rank=4, lora_alpha=8, kl_loss_coefficient=1e-6), tiny_model)
    groups = DigitTask(tiny_model, seed=3).roll_out(tiny_model, step=1)
    first = engine.update(arrays_of(groups))
    assert first["logprob_diff_max"] < MAX_DIFFERENCE, "an adapter that has learned nothing changes nothing"
    assert first["actor/kl_loss"] == pytest.approx(0.0, abs=1e-9)
    plain = VerlEngine(options(tiny_model, lora_rank=4, lora_alpha=8), tiny_model).update(arrays_of(groups))
    assert first["grad_norm"] == pytest.approx(plain["grad_norm"], rel=1e-3), "looking at the reference freezes nothing"
    for step in (1, 2):
        metrics = engine.update(arrays_of(groups), seed=(step,))
    assert metrics["actor/kl_loss"] > 1e-6, "the reference has no adapter"
    (served := tmp_path / "served").mkdir()
    engine.save_weights(served)
    before, after = load_file(tiny_model / "model.safetensors"), load_file(served / "model.safetensors")
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all("_proj" in name for name in changed), "linear layers"
    assert all(torch.linalg.matrix_rank(after[name] - before[name], rtol=1e-3) <= 4 for name in changed)
    sampled = DigitTask(tiny_model, seed=4).roll_out(served, step=1)
    assert engine.update(arrays_of(sampled))["logprob_diff_max"] < MAX_DIFFERENCE, "served is what is trained"
    checkpoint = save(engine, tmp_path / "checkpoint")
    assert not (checkpoint / "model.safetensors").exists()
    with pytest.raises(TrainingError, match="is another than the one to train"):
        VerlEngine(options(tiny_model, lora_rank=8), checkpoint, first=tiny_model)


def test_another_reference_is_taken_where_one_is_named(tiny_model: Path, tmp_path: Path) -> None:
    other = make_tiny_model(tmp_path / "other", seed=9)
    engine = VerlEngine(options(tiny_model, kl_loss_coefficient=1.0, reference=other), tiny_model)
    assert engine.update(arrays_of(random_groups(1)))["actor/kl_loss"] > 1e-3
    with pytest.raises(TrainingError, match=r"the reference policy .* is not there"):
        VerlEngine(options(tiny_model, kl_loss_coefficient=1.0, reference=tmp_path / "gone"), tiny_model)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"policy_loss": "clip_cov"}, "is 'clip_cov', which chooses tokens by comparing"),
        ({"policy_loss": "ppo"}, "policy_loss is 'ppo'; there are vanilla, gspo"),
        ({"kl_loss_type": "k4"}, "kl_loss_type is 'k4'; there are kl, k1"),
        ({"kl_reward_type": "k1+"}, r"kl_reward_type is 'k1\+'"),
        ({"kl_loss_coefficient": -1.0}, "kl_loss_coefficient is -1.0; a finite number of at least 0"),
        ({"kl_reward_coefficient": 0.1, "reward_dimensions": {"a": 1.0}}, "its reward_dimensions is"),
    ],
)
def test_what_no_update_can_be_made_of_is_refused(tiny_model: Path, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        options(tiny_model, **changes)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"rollout_is": "row"}, "rollout_is is 'row'"),
        ({"rollout_is_threshold": 0.0}, "rollout_is_threshold is 0"),
        ({"rollout_rs": "token_k9", "rollout_rs_threshold": 1.0}, "rollout_rs is 'token_k9'"),
        ({"rollout_rs": "token_k1"}, "has no rollout_rs_threshold"),
    ],
)
def test_a_correction_that_verl_does_not_know_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        RolloutCorrection(**changes)


def test_several_mini_batches_are_compared_before_the_first_update(tiny_model: Path, tmp_path: Path) -> None:
    groups = DigitTask(tiny_model).roll_out(tiny_model, step=1)
    engine = VerlEngine(options(tiny_model, mini_batches_per_step=3, epochs_per_step=2), tiny_model)
    metrics = engine.update(arrays_of(groups))
    assert metrics["logprob_diff_max"] < MAX_DIFFERENCE
    assert json.loads((save(engine, tmp_path / "c") / "trainer.json").read_text())["scheduler"]["last_epoch"] == 1


def largest_difference(a: Path, b: Path) -> float:
    from safetensors.torch import load_file

    ours, theirs = load_file(a / "model.safetensors"), load_file(b / "model.safetensors")
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours)


def groups_half_of_which_say_nothing() -> list[Group]:
    silent = [
        Group(f"u{g}", tuple(t.model_copy(update={"reward": 0.5}) for t in group.trajectories))
        for g, group in enumerate(random_groups(2))
    ]
    return [*random_groups(1), *silent]


def note_gradients(engine: VerlEngine, into: list[torch.Tensor]) -> None:
    """Copies every parameter's gradient, one tensor an update, as the optimiser is about to use it."""
    optimizer: Any = engine.models.actor.engine.optimizer  # what verl computes is not shown

    def note(*_: object) -> None:
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
        local = [g.to_local() if isinstance(g, DTensor) else g for g in gradients]
        into.append(torch.cat([gradient.flatten() for gradient in local]))

    optimizer.register_step_pre_hook(note)


@pytest.mark.parametrize("normalisation", ["token", "rollout", "sequence"])
def test_rows_without_a_signal_are_not_computed_and_count_all_the_same(
    tiny_model: Path, tmp_path: Path, normalisation: str
) -> None:
    arrays = arrays_of(groups_half_of_which_say_nothing())
    made: dict[float, tuple[dict[str, float], Path]] = {}
    gradients: dict[float, list[torch.Tensor]] = {0.0: [], 1e-30: []}
    for entropy in (0.0, 1e-30):  # with an entropy bonus, however small, every row is computed
        config = options(
            tiny_model, entropy_coefficient=entropy, loss_normalisation=normalisation, mini_batches_per_step=2
        )
        engine = VerlEngine(config, tiny_model)
        note_gradients(engine, gradients[entropy])
        metrics = engine.update(arrays, seed=(0, 1))
        made[entropy] = metrics, save(engine, tmp_path / str(entropy))
    some, everything = made[0.0][0], made[1e-30][0]
    assert some["rows/computed"] <= 0.6 * everything["rows/computed"] == 0.6 * len(arrays)
    assert some["grad_norm"] == pytest.approx(everything["grad_norm"], rel=1e-6)
    assert len(gradients[0.0]) == len(gradients[1e-30]) > 0
    for one, other in zip(gradients[0.0], gradients[1e-30], strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-6)
    assert largest_difference(made[0.0][1], made[1e-30][1]) < 1e-5


def test_the_update_does_not_depend_on_the_micro_batches(tiny_model: Path, tmp_path: Path) -> None:
    arrays = arrays_of(random_groups(1))
    norms: list[float] = []
    for tokens in (1, 64, 16_384):
        engine = VerlEngine(options(tiny_model, tokens_per_micro_batch=tokens), tiny_model)
        metrics = engine.update(arrays, seed=(0, 1))
        assert metrics["tokens/padded"] >= metrics["tokens/computed"]
        norms.append(metrics["grad_norm"])
    assert norms == pytest.approx([norms[0]] * 3, rel=1e-5)


def test_no_pass_of_the_model_is_wider_than_the_limit(tiny_model: Path) -> None:
    engine = VerlEngine(options(tiny_model, tokens_per_micro_batch=40), tiny_model)
    arrays, shapes = arrays_of(random_groups(1)), list[tuple[int, int]]()

    def note(_module: Any, _args: Any, kwargs: dict[str, Any]) -> None:
        shapes.append(tuple(kwargs["input_ids"].shape))

    engine.module.register_forward_pre_hook(note, with_kwargs=True)
    engine.update(arrays)
    assert sum(rows for rows, _ in shapes) == len(arrays.rows_with_signal)
    assert all(rows == 1 or rows * tokens <= 40 for rows, tokens in shapes)


def test_a_row_longer_than_a_micro_batch_still_fits(tiny_model: Path) -> None:
    engine = VerlEngine(options(tiny_model, tokens_per_micro_batch=16), tiny_model)
    long = make_trajectory("g-0", triplets=[make_triplet(list(range(3, 43)), [5, 6])])
    short = make_trajectory("g-1", reward=0.0, triplets=[make_triplet([5], [6], reward=0.0)])
    assert np.isfinite(engine.update(arrays_of([Group("g", (long, short))]))["grad_norm"])


def test_the_grpo_advantage_is_verls() -> None:
    """verl's own estimator as a second opinion, where a rollout is one row and nothing is missing."""
    import torch
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

    rewards = np.random.default_rng(0).normal(size=(20, 6))
    scores = torch.from_numpy(rewards.reshape(-1, 1))
    for advantage, by_std in (("grpo", True), ("group_mean", False)):
        theirs, _ = compute_grpo_outcome_advantage(
            token_level_rewards=scores,
            response_mask=torch.ones_like(scores),
            index=np.repeat(np.arange(20).astype(str), 6).astype(object),
            norm_adv_by_std_in_grpo=by_std,
        )
        ours = [group_advantages(group.tolist(), Scoring(advantage=advantage)) for group in rewards]  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # both are names of estimators
        np.testing.assert_allclose(np.array(ours, float).ravel(), theirs[:, 0].numpy(), atol=1e-9)


def test_the_advantage_over_a_greedy_rollout_is_verls() -> None:
    import verl.trainer.ppo.core_algos as algorithms

    untyped: Any = algorithms
    rewards = np.random.default_rng(0).normal(size=(20, 4))  # of each task: three rollouts, and the greedy one
    scores = torch.from_numpy(rewards[:, :3].reshape(-1, 1))
    theirs, _ = untyped.get_adv_estimator_fn("remax")(
        token_level_rewards=scores,
        reward_baselines=torch.from_numpy(np.repeat(rewards[:, 3], 3)),
        response_mask=torch.ones_like(scores),
    )
    members = [
        make_trajectory(
            f"r{task}-{i}", reward=float(rewards[task, i]), mode=RolloutMode.TEST if i == 3 else RolloutMode.TRAIN
        )
        for task in range(20)
        for i in range(4)
    ]
    groups = [Group(f"g{task}", tuple(members[4 * task : 4 * task + 4])) for task in range(20)]
    rows = select_rows(groups, scoring=Scoring(advantage="remax")).rows
    assert len(rows) == 60, "greedy rollouts are not trained on"
    np.testing.assert_allclose([row.spans[0].advantage for row in rows], theirs[:, 0].numpy(), atol=1e-9)


def test_the_whitened_advantages_are_verls() -> None:
    """Of rollouts of one call each: answers of several lengths, whitened over the batch's tokens."""
    import verl.trainer.ppo.core_algos as algorithms

    untyped: Any = algorithms
    chance = np.random.default_rng(0)
    lengths, rewards = chance.integers(1, 6, size=24), chance.normal(size=24)
    mask = torch.from_numpy((np.arange(5) < lengths[:, None]).astype(np.float64))
    scores = torch.zeros(24, 5, dtype=torch.float64)
    scores[np.arange(24), lengths - 1] = torch.from_numpy(rewards)
    members = [
        make_trajectory(f"r{i}", reward=float(rewards[i]), triplets=[make_triplet([1], [2] * int(lengths[i]))])
        for i in range(24)
    ]
    groups = [Group(f"g{g}", tuple(members[4 * g : 4 * g + 4])) for g in range(6)]
    index = np.repeat(np.arange(6).astype(str), 4).astype(object)
    for advantage in ("reinforce_plus_plus", "reinforce_plus_plus_baseline"):
        theirs, _ = untyped.get_adv_estimator_fn(advantage)(
            token_level_rewards=scores.clone(), response_mask=mask, index=index, config=SimpleNamespace(gamma=1.0)
        )
        rows = select_rows(groups, scoring=Scoring(advantage=advantage)).rows
        np.testing.assert_allclose([row.spans[0].advantage for row in rows], theirs[:, 0].numpy(), atol=1e-9)


@pytest.mark.parametrize(("rows", "parts"), [(0, 3), (1, 3), (7, 3), (8, 1), (64, 4)])
def test_mini_batches_hold_every_row_once(rows: int, parts: int) -> None:
    batches = select_mini_batches(rows, parts, seed=(5,))
    assert sorted(row for batch in batches for row in batch) == list(range(rows))
    assert all(batches)
    assert max(map(len, batches), default=0) - min(map(len, batches), default=0) <= 1
