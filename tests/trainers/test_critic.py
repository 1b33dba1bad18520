"""PPO with a critic: advantages of tokens, the critic's loss and updates, against a slow reference and verl's own."""

from __future__ import annotations

import random
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from lightstream.schemas.errors import SettingsError, TrainingError
from lightstream.schemas.packing import unpack_int32
from lightstream.schemas.records import StepOutcome
from lightstream.trainers import VERL, RolloutCorrection, make_tiny_model
from lightstream.trainers.engines.verl.critic import (
    RETURNS,
    VALUES,
    WeightedValueLoss,
    estimate,
    rewards_of_tokens,
)
from lightstream.trainers.engines.verl.engine import VerlEngine
from lightstream.trainers.engines.verl.runtime import load_verl
from lightstream.trainers.engines.verl.shards import Shard
from lightstream.trainers.engines.verl.tensors import micro_batches, to_tensordict
from lightstream.trainers.loop.step import select_batch
from lightstream.trainers.loop.waves import StepGroups
from lightstream.trainers.rollouts.batch import BatchArrays, Scoring, build_arrays, select_rows, token_weights
from lightstream.trainers.rollouts.groups import Group

from .support.critic import episodes, gae, value_gradient, value_loss
from .support.digits import DigitTask
from .support.reference import CLIP_HIGH, CLIP_LOW, Options, make_groups, reference
from .support.trajectories import make_trajectory, make_triplet
from .test_training_truth import ours, random_options

TOLERANCE = 1e-5
BATCHES = 150


@pytest.fixture(scope="module", autouse=True)
def verl() -> None:
    load_verl("cpu")


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"))


def by_token(arrays: BatchArrays, values: np.ndarray[Any, Any]) -> dict[int, float]:
    """Of the tokens that are trained on."""
    trained = arrays.response_mask == 1
    return dict(zip(arrays.response_ids[trained].tolist(), values[trained].tolist(), strict=True))


def of_tokens(arrays: BatchArrays, values: dict[int, float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The other way round; noise where nothing is trained."""
    noise = np.random.default_rng(0).normal(size=len(arrays.response_ids))
    trained = arrays.response_mask == 1
    told = [values.get(token, 0.0) for token in arrays.response_ids.tolist()]
    return np.where(trained, told, noise)


def test_advantages_and_returns_are_as_the_reference_has_them() -> None:
    checked = 0
    for seed in range(BATCHES):
        chance = random.Random(f"gae-{seed}")
        groups, options = make_groups(chance), random_options(chance, "gae")
        truth, arrays = reference(groups, options), build_arrays(ours(groups, options))
        gamma, lam = chance.choice([1.0, 0.9]), chance.choice([1.0, 0.95, 0.0])
        values = {token: chance.gauss(0, 1) for token in truth.advantages}
        costs = {token: chance.gauss(0, 0.1) for token in truth.advantages}
        per: Any = options.per
        rewards = rewards_of_tokens(arrays, per) - of_tokens(arrays, costs)
        found = estimate(arrays, rewards, of_tokens(arrays, values), gamma=gamma, lam=lam)
        rollouts = episodes(groups, truth.advantages)
        expected = gae(rollouts, truth.advantages, values, per=per, gamma=gamma, lam=lam, costs=costs)
        assert by_token(arrays, found.arrays.advantages) == pytest.approx(
            expected.advantages, rel=TOLERANCE, abs=TOLERANCE
        )
        assert by_token(arrays, found.returns) == pytest.approx(expected.returns, rel=TOLERANCE, abs=TOLERANCE)
        untrained = arrays.response_mask == 0
        assert not found.arrays.advantages[untrained].any()
        assert not found.returns[untrained].any()
        if expected.returns:
            checked += 1
            variance = np.var([*expected.returns.values()])
            left = np.var([expected.returns[token] - values[token] for token in expected.returns])
            explained = found.metrics["critic/vf_explained_var"]
            assert explained == pytest.approx(1 - left / (variance + 1e-5), rel=TOLERANCE, abs=TOLERANCE)
    assert checked > BATCHES / 2


def test_the_calls_of_a_rollout_follow_each_other_whichever_rows_they_are_in() -> None:
    """Calls 0 and 2 are one sequence, and call 1 of a sub-agent another: the episode goes 0, 1, 2."""
    first = make_triplet([1, 2], [10, 11], call_index=0, reward=1.0)
    aside = make_triplet([5], [20], call_index=1, reward=2.0).model_copy(update={"agent_name": "other"})
    last = make_triplet([1, 2, 10, 11, 3], [12], call_index=2, reward=4.0)
    group = Group("g", (make_trajectory("r", reward=7.0, triplets=[first, aside, last]),))
    for per, reward in (("rollout", [0.0, 0.0, 0.0, 7.0]), ("turn", [0.0, 1.0, 2.0, 4.0])):
        scoring: Any = {"advantage": "gae", "per": per}
        arrays = build_arrays(select_rows([group], scoring=Scoring(**scoring)))
        assert arrays.response_ids.tolist() == [10, 11, 3, 12, 20]
        rewards = rewards_of_tokens(arrays, scoring["per"])
        assert rewards.tolist() == [reward[0], reward[1], 0.0, reward[3], reward[2]]
        returns = estimate(arrays, rewards, np.zeros(5), gamma=0.5, lam=1.0).returns
        expected = [sum(0.5 ** (k - t) * reward[k] for k in range(t, 4)) for t in range(4)]
        assert returns.tolist() == pytest.approx([expected[0], expected[1], 0.0, expected[3], expected[2]])


def test_advantages_of_rollouts_of_one_row_are_verls() -> None:
    """Tokens of tools between the calls included: verl skips them by its mask, too."""
    import verl.trainer.ppo.core_algos as algorithms

    untyped: Any = algorithms
    chance = np.random.default_rng(0)
    members, masks = [], list[list[int]]()
    for number in range(12):
        first, tool, second = (chance.integers(3, 259, size=chance.integers(1, 5)).tolist() for _ in range(3))
        calls = [
            make_triplet([1, 2], first, call_index=0),
            make_triplet([1, 2, *first, *tool], second, call_index=1),
        ]
        members.append(make_trajectory(f"r{number}", reward=float(chance.normal()), triplets=calls))
        masks.append([1] * len(first) + [0] * len(tool) + [1] * len(second))
    arrays = build_arrays(select_rows([Group("g", tuple(members))], scoring=Scoring(advantage="gae")))
    longest = max(map(len, masks))
    inside = np.arange(longest) < arrays.response_lengths[:, None]
    assert arrays.response_mask.tolist() == [sampled for mask in masks for sampled in mask]
    values, rewards = np.zeros((12, longest)), np.zeros((12, longest))
    values[inside] = chance.normal(size=int(inside.sum()))
    rewards[np.arange(12), arrays.response_lengths - 1] = [trajectory.reward for trajectory in members]
    mask = np.zeros((12, longest))
    mask[inside] = arrays.response_mask
    theirs, returns = untyped.compute_gae_advantage_return(
        *(torch.from_numpy(table) for table in (rewards, values, mask)), gamma=0.98, lam=0.9
    )
    found = estimate(arrays, rewards_of_tokens(arrays, "rollout"), values[inside], gamma=0.98, lam=0.9)
    trained = mask[inside] == 1
    np.testing.assert_allclose(found.arrays.advantages[trained], theirs.numpy()[inside][trained], atol=1e-6)
    np.testing.assert_allclose(found.returns[trained], returns.numpy()[inside][trained], atol=1e-6)


def loss_of(
    arrays: BatchArrays, weights: np.ndarray[Any, Any], tables: dict[str, dict[int, float]], clip: float, size: int
) -> tuple[float, dict[int, float], float]:
    """Ours, over micro-batches of so many tokens: the loss, its derivative by each value, and the share clipped."""
    from verl.utils import tensordict_utils

    loss_function = WeightedValueLoss(clip)
    further = {name: of_tokens(arrays, tables[name]).astype(np.float32) for name in (VALUES, RETURNS)}
    batch = to_tensordict(arrays, weights, arrays.response_mask == 1, further)
    ids = arrays.input_ids.tolist()
    # The engine's output at a position is the value before the token after it.
    told = [tables["now"].get(token, 0.5) for token in [*ids[1:], 0]]
    values = torch.tensor(told, dtype=torch.float64, requires_grad=True)
    ends = np.cumsum(arrays.lengths)
    starts, total = ends - arrays.lengths, 0.0
    for part in micro_batches(arrays.lengths.tolist(), size):
        rows: Any = tensordict_utils.index_select_tensor_dict(batch, part)
        nested = torch.nested.as_nested_tensor(
            [values[starts[row] : ends[row]].float() for row in part], layout=torch.jagged
        )
        loss, _ = loss_function({VALUES: nested}, rows)
        loss.backward()
        total += float(loss.detach())
    assert values.grad is not None
    gradient = dict.fromkeys(tables["now"], 0.0)
    for token, slope in zip(ids[1:], values.grad[:-1].tolist(), strict=True):
        if token in gradient:
            gradient[token] += slope
    return total, gradient, loss_function.clipped(Shard())


def test_the_loss_of_values_is_as_the_reference_has_it_and_verls() -> None:
    import verl.trainer.ppo.core_algos as algorithms

    untyped: Any = algorithms
    checked = 0
    for seed in range(BATCHES):
        chance = random.Random(f"value-{seed}")
        groups, options = make_groups(chance), random_options(chance, "gae")
        truth, arrays = reference(groups, options), build_arrays(ours(groups, options))
        if not truth.advantages:
            continue
        checked += 1
        before = {token: chance.gauss(0, 1) for token in truth.advantages}
        now = {token: value + chance.gauss(0, 0.4) for token, value in before.items()}
        returns = {token: chance.gauss(0, 1) for token in truth.advantages}
        normalisation: Any = options.normalisation
        weights = token_weights(arrays, normalisation, constant_tokens=options.constant_tokens)
        tables = {"now": now, VALUES: before, RETURNS: returns}
        loss, gradient, clipped = loss_of(arrays, weights, tables, 0.3, chance.choice([1, 40, 10_000]))
        expected = value_loss(now, before, returns, truth.weights, 0.3)
        assert loss == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE)
        slopes = value_gradient(now, before, returns, truth.weights, 0.3)
        assert gradient == pytest.approx(slopes, rel=TOLERANCE, abs=TOLERANCE)
        if options.normalisation == "token":
            names = list(now)
            rows = [torch.tensor([[table[name] for name in names]]) for table in (now, returns, before)]
            theirs, share = untyped.compute_value_loss(*rows, torch.ones(1, len(names)), 0.3)
            assert loss == pytest.approx(float(theirs), rel=TOLERANCE, abs=TOLERANCE)
            assert clipped == pytest.approx(float(share), abs=1e-6)
    assert checked > BATCHES / 2


def options_of(model: Path, **changes: Any) -> VERL:
    base: dict[str, Any] = {
        "model": model,
        "steps": 20,
        "advantage": "gae",
        "learning_rate": 3e-3,
        "critic_learning_rate": 3e-3,
        "weight_decay": 0.0,
        "clip_ratio_low": CLIP_LOW,
        "clip_ratio_high": CLIP_HIGH,
        "device": "cpu",
        "threads": 1,
    }
    return VERL(**(base | changes))


def few_groups(seed: int = 0) -> list[Group]:
    """Rollouts of several calls, some of which continue each other; each sampled token has an id of its own."""
    chance, fresh = random.Random(seed), count(20)
    members: list[list[Any]] = [[], []]
    for number in range(4):
        history, calls = [chance.randrange(3, 10) for _ in range(4)], list[Any]()
        for index in range(3):
            if index and chance.random() < 0.3:
                history = [chance.randrange(3, 10) for _ in range(3)]
            response = [next(fresh) for _ in range(chance.randint(1, 5))]
            logprobs = [-5.0 - chance.random() for _ in response]
            reward = float(chance.randrange(3))
            calls.append(make_triplet(history, response, logprobs, call_index=index, reward=reward))
            history = [*history, *response, chance.randrange(3, 10)]
        members[number // 2].append(make_trajectory(f"r{number}", reward=float(number % 3), triplets=calls))
    return [Group(f"g{number}", tuple(of_group)) for number, of_group in enumerate(members)]


def arrays_of(groups: list[Group]) -> BatchArrays:
    return build_arrays(select_rows(groups, scoring=Scoring(advantage="gae")))


def save(engine: VerlEngine, folder: Path) -> Path:
    folder.mkdir()
    engine.save(folder)
    engine.saved_in(folder)
    return folder


class Slow:
    """The expected result of an update, by transformers in float64 and the slow reference."""

    def __init__(self, groups: list[Group], model: Path, checkpoint: Path) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForTokenClassification

        load_config: Any = AutoConfig.from_pretrained
        described = load_config(model, num_labels=1)
        self.groups = groups
        self.truth = reference(groups, Options(advantage="gae"))
        self.critic: Any = AutoModelForTokenClassification.from_pretrained(
            checkpoint / "critic", config=described, dtype=torch.float64
        )
        actor: Any = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float64)
        first: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64)
        self.values: dict[int, Any] = {}
        self.actor: dict[int, float] = {}
        self.kl: dict[int, float] = {}
        for ids, start in self._calls():
            said = self.critic(input_ids=ids).logits[0, :, 0]
            spoken, before = (torch.log_softmax(m(input_ids=ids).logits[0].detach(), -1) for m in (actor, first))
            for place in range(start, ids.shape[1]):
                token = int(ids[0, place])
                self.values[token] = said[place - 1]
                self.actor[token] = float(spoken[place - 1, token])
                self.kl[token] = self.truth.sampled[token] - float(before[place - 1, token])

    def _calls(self) -> list[tuple[Any, int]]:
        return [
            (torch.tensor([[*prompt, *unpack_int32(call.response_token_ids)]]), len(prompt))
            for group in self.groups
            for trajectory in group.trajectories
            for call in trajectory.triplets
            for prompt in [[*unpack_int32(call.prompt_token_ids)]]
        ]

    def gae(self, config: VERL) -> Any:
        values = {token: float(value.detach()) for token, value in self.values.items()}
        rollouts = episodes(self.groups, self.truth.advantages)
        costs = {token: config.kl_reward_coefficient * kl for token, kl in self.kl.items()}
        return gae(
            rollouts, self.truth.advantages, values, per="rollout", gamma=config.gamma, lam=config.lam, costs=costs
        )

    def critic_gradient(self, returns: dict[int, float]) -> float:
        """The norm over all parameters of the critic."""
        loss = sum(self.truth.weights[t] * 0.5 * (self.values[t] - returns[t]) ** 2 for t in returns)
        untyped: Any = loss
        untyped.backward()
        return float(torch.cat([p.grad.flatten() for p in self.critic.parameters() if p.grad is not None]).norm())


@pytest.mark.parametrize("kl", [0.0, 0.1])
def test_an_update_is_as_the_slow_reference_has_it(tiny_model: Path, tmp_path: Path, kl: float) -> None:
    config = options_of(tiny_model, gamma=0.97, lam=0.9, kl_reward_coefficient=kl, tokens_per_micro_batch=40)
    engine = VerlEngine(config, tiny_model)
    for seed in (7, 8):  # so that the values are of some size
        engine.update(arrays_of(few_groups(seed)), seed=(seed,))
    checkpoint = save(engine, tmp_path / "before")
    groups = few_groups()
    metrics = engine.update(arrays_of(groups), seed=(1,))
    slow = Slow(groups, tiny_model, checkpoint)
    expected = slow.gae(config)
    values = [float(slow.values[token].detach()) for token in expected.returns]
    assert np.std(values) > 0.01
    assert metrics["critic/values/mean"] == pytest.approx(np.mean(values), rel=1e-3, abs=1e-4)
    assert metrics["critic/returns/mean"] == pytest.approx(np.mean([*expected.returns.values()]), rel=1e-3)
    loss = sum(0.5 * (v - r) ** 2 for v, r in zip(values, expected.returns.values(), strict=True)) / len(values)
    assert metrics["critic/vf_loss"] == pytest.approx(loss, rel=1e-3)
    assert metrics["critic/vf_clipfrac"] == 0
    assert metrics["critic/lr"] == pytest.approx(3e-3)
    assert metrics["critic/grad_norm"] == pytest.approx(slow.critic_gradient(expected.returns), rel=1e-3)
    truth = slow.truth
    truth.advantages = expected.advantages
    assert metrics["actor/pg_loss"] == pytest.approx(truth.loss(slow.actor), rel=1e-3, abs=1e-4)
    assert ("actor/reward_kl_penalty" in metrics) == bool(kl)
    if kl:
        assert metrics["actor/reward_kl_penalty"] == pytest.approx(np.mean([*slow.kl.values()]), rel=1e-3)


def test_a_critic_expects_nothing_at_first_and_learns_the_returns(tiny_model: Path) -> None:
    """With lam 1 the returns of a batch do not depend on the values: they are what the critic is to learn."""
    engine = VerlEngine(options_of(tiny_model, value_clip=10.0), tiny_model)
    arrays = arrays_of(few_groups())
    found = [engine.update(arrays, seed=(step,)) for step in range(12)]
    assert found[0]["critic/values/mean"] == 0
    assert found[0]["critic/vf_explained_var"] == pytest.approx(0.0, abs=1e-4)
    losses = [metrics["critic/vf_loss"] for metrics in found]
    assert losses[-1] < 0.25 * losses[0]
    assert found[-1]["critic/vf_explained_var"] > 0.5
    assert len({round(metrics["critic/returns/mean"], 5) for metrics in found}) == 1


def test_it_learns_the_digits(tiny_model: Path, tmp_path: Path) -> None:
    config = options_of(tiny_model, learning_rate=1.5e-2, critic_learning_rate=1e-2, lam=0.95)
    engine, folder, task = VerlEngine(config, tiny_model), tiny_model, DigitTask(tiny_model)
    rewards: list[float] = []
    for step in range(1, 17):
        groups = task.roll_out(folder, step=step)
        assert engine.update(arrays_of(groups), seed=(0, step))["logprob_diff_max"] < 1e-3
        folder = save(engine, tmp_path / str(step))
        rewards.append(float(np.mean([t.reward or 0.0 for group in groups for t in group.trajectories])))
    assert np.mean(rewards[:3]) < 0.2, "ten digits among 264 tokens"
    assert np.mean(rewards[-3:]) > 0.7


def test_values_that_moved_too_far_in_a_step_are_counted(tiny_model: Path) -> None:
    arrays, clipped = arrays_of(few_groups()), list[float]()
    for clip in (1e-3, 10.0):
        engine = VerlEngine(options_of(tiny_model, value_clip=clip, epochs_per_step=4), tiny_model)
        clipped.append(engine.update(arrays)["critic/vf_clipfrac"])
    assert clipped[0] > 0.2 > clipped[1] == 0


def test_a_group_of_equal_rewards_is_learned_from(tiny_model: Path) -> None:
    """Nothing is compared within a group: a reward of zero has something to say, too."""
    members = tuple(
        make_trajectory(f"r{i}", reward=0.0, triplets=[make_triplet([3, 4], [30 + i], [-5.0])]) for i in range(4)
    )
    config = options_of(tiny_model)
    engine = VerlEngine(config, tiny_model)
    batch = select_batch(config, StepGroups([Group("g", members)]), 0, engine)
    assert batch.outcome is StepOutcome.UPDATED
    assert batch.rows.excluded == {}
    assert batch.rows.groups_without_signal == 0
    assert set(batch.rows.triplets_used.values()) == {1}
    assert engine.update(build_arrays(batch.rows))["rows/computed"] == 4


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("changes", [{}, {"lora_rank": 4}], ids=["whole", "adapter"])
def test_a_resumed_engine_goes_on_to_the_bit_critic_and_all(
    tiny_model: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    config = options_of(tiny_model, mini_batches_per_step=2, lam=0.9, lr_schedule="cosine", **changes)
    whole = VerlEngine(config, tiny_model)
    for step in (1, 2, 3):
        whole.update(arrays_of(few_groups(step)), seed=(0, step))
        if step == 2:
            save(whole, tmp_path / "two")
    expected = save(whole, tmp_path / "three")
    resumed = VerlEngine(config, tmp_path / "two", first=tiny_model)
    resumed.update(arrays_of(few_groups(3)), seed=(0, 3))
    found = save(resumed, tmp_path / "resumed")
    assert {"critic/model.safetensors", "critic/optimizer.safetensors", "critic/trainer.json"} <= set(files(found))
    assert files(found) == files(expected)
    (served := tmp_path / "served").mkdir()
    resumed.save_weights(served)
    assert not (served / "critic").exists()


def test_while_the_critic_warms_up_the_actor_stays(tiny_model: Path, tmp_path: Path) -> None:
    config, arrays = options_of(tiny_model, critic_warmup_steps=2), arrays_of(few_groups())
    engine = VerlEngine(config, tiny_model)
    first = files(save(engine, tmp_path / "0"))["model.safetensors"]
    metrics = engine.update(arrays, seed=(1,))
    assert metrics["critic/grad_norm"] > 0
    assert np.isfinite(metrics["logprob_diff_max"])
    assert not {name for name in metrics if name.startswith("actor/")}
    checkpoint = save(engine, tmp_path / "1")
    resumed = VerlEngine(config, checkpoint)  # a restart in between, which goes on counting
    resumed.update(arrays, seed=(2,))
    assert files(save(resumed, tmp_path / "2"))["model.safetensors"] == first
    resumed.update(arrays, seed=(3,))
    assert files(save(resumed, tmp_path / "3"))["model.safetensors"] != first


def test_advantages_leave_out_what_the_correction_rejects(tiny_model: Path) -> None:
    correction = RolloutCorrection(rollout_rs="token_k1", rollout_rs_threshold="0.9_1.1")
    engine = VerlEngine(options_of(tiny_model, rollout_correction=correction), tiny_model)
    metrics = engine.update(arrays_of(few_groups()))
    assert 0 < metrics["correction/rejected"] < 1
    assert np.isfinite([metrics["critic/vf_loss"], metrics["actor/pg_loss"]]).all()


def test_a_critic_with_a_head_of_its_own_begins_with_it(tiny_model: Path, tmp_path: Path) -> None:
    other = make_tiny_model(tmp_path / "other", seed=3)
    tensors = load_file(other / "model.safetensors")
    tensors |= {"score.weight": torch.zeros(1, 64), "score.bias": torch.tensor([0.75])}
    save_file(tensors, other / "model.safetensors", metadata={"format": "pt"})
    engine = VerlEngine(options_of(tiny_model, critic_model=other), tiny_model)
    assert engine.update(arrays_of(few_groups()))["critic/values/mean"] == pytest.approx(0.75)
    saved = load_file(save(engine, tmp_path / "saved") / "critic" / "model.safetensors")
    embedding = saved["model.embed_tokens.weight"] - tensors["model.embed_tokens.weight"]
    assert float(embedding.abs().max()) < 0.1, "its own weights, moved a little"


def test_a_critic_of_other_tokens_is_named(tiny_model: Path, tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    other = make_tiny_model(tmp_path / "other")
    load_config: Any = AutoConfig.from_pretrained
    new_model: Any = AutoModelForCausalLM
    smaller = new_model.from_config(load_config(other, vocab_size=100))
    smaller.save_pretrained(other)
    with pytest.raises(TrainingError, match="has a vocabulary of 100 tokens, and the model one of 264"):
        VerlEngine(options_of(tiny_model, critic_model=other), tiny_model)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"gamma": 1.1}, r"gamma is 1\.1; a number from 0 to 1"),
        ({"lam": -0.1}, r"lam is -0\.1; a number from 0 to 1"),
        ({"value_clip": 0.0}, r"value_clip is 0\.0; a finite number above 0"),
        ({"critic_learning_rate": 0.0}, r"critic_learning_rate is 0\.0"),
        ({"critic_warmup_steps": -1}, "critic_warmup_steps is -1; at least 0"),
        ({"refill_silent_groups": 1}, "advantage is 'gae', which compares the rollouts of a step"),
        ({"advantage": "grpo", "lam": 0.9}, "given lam=0.9, but its advantage is 'grpo', which has no critic"),
    ],
)
def test_what_no_critic_can_be_made_of_is_refused(tiny_model: Path, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        options_of(tiny_model, **changes)
