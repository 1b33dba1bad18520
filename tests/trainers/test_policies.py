"""Several policies on one model: each learns from its own calls, as if it were alone, and nothing else changes."""

from __future__ import annotations

import gc
import json
import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError, TrainingError
from lightstream.schemas.policy_names import policy_of_model
from lightstream.schemas.records import RewardRecord, StepOutcome, Trajectory
from lightstream.trainers import VERL, AgentPolicy, VllmOptions, make_tiny_model
from lightstream.trainers.algorithms.recorded import recorded_context
from lightstream.trainers.engines.verl.config import options_of
from lightstream.trainers.engines.verl.engine import VerlEngine
from lightstream.trainers.ledger import MemoryLedger
from lightstream.trainers.rollouts.batch import BatchRows, build_arrays, select_rows, split_groups
from lightstream.trainers.rollouts.groups import Group
from tests.support.checkpoints import checkpoint_in

from .support.trajectories import make_trajectory, make_triplet
from .support.two_policies import team_trajectory

TASKS, SIZE, STEPS = 2, 6, 4
PLANNER = AgentPolicy(agents="^planner$", reward="planner", lora_rank=4)
SOLVER = AgentPolicy(agents="^solver$", reward="solver", lora_rank=4)
ADAPTER = "adapter_model.safetensors"


class Team:
    """A run on recorded rollouts of a team, each ``train`` of which is a process of its own."""

    def __init__(self, folder: Path, policies: dict[str, AgentPolicy], **options: Any) -> None:
        self.folder = folder
        self.ledger = MemoryLedger(trainer_id="run", run_id="run")
        self.log = [
            team_trajectory(f"{group}-{i}", group_id=group, group_size=SIZE, run_id="run", policy_version=step - 1)
            for step in range(1, STEPS + 1)
            for group in (f"run-s{step}-g{g}" for g in range(TASKS))
            for i in range(SIZE)
        ]
        self.options: dict[str, Any] = {
            "model": make_tiny_model(folder.parent / "model"),
            "policies": policies,
            "tasks_per_step": TASKS,
            "rollouts_per_task": SIZE,
            "learning_rate": 1e-2,
            "logprob_gap_max": math.inf,  # those of these rollouts are made up
            "keep_checkpoints": 20,
            "device": "cpu",
            "threads": 1,
        } | options

    def train(self, steps: int = STEPS) -> dict[str, bytes]:
        """Go on up to this step; the adapter of each policy after it, as it is served."""
        verl = VERL(steps=steps, **self.options)
        verl.run(
            recorded_context(
                self.log,
                settings=Settings.load(data_dir=self.folder),
                ledger=self.ledger,
                history=self.ledger.open(),
                run_id="run",
            )
        )
        served = self.ledger.resources[-1].adapters
        return {
            policy_of_model(name): (checkpoint_in(self.folder, folder) / ADAPTER).read_bytes()
            for name, folder in served.items()
        }

    def adapter(self, name: str, record: int = -1) -> Path:
        """The folder of an adapter that is served so."""
        return checkpoint_in(self.folder, self.ledger.resources[record].adapters[f"run/{name}"])


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Team:
    team = Team(tmp_path_factory.mktemp("runs") / "together", {"planner": PLANNER, "solver": SOLVER})
    team.train()
    return team


def slow_advantages(groups: list[Group], agent: str) -> dict[tuple[str, int], float]:
    """(rollout, call) -> advantage of each call of an agent: GRPO within the rollouts in which it acted."""
    found: dict[tuple[str, int], float] = {}
    for group in groups:
        acted: list[tuple[Trajectory, list[int], float]] = []
        for trajectory in group.trajectories:
            calls = [c.call_index for c in trajectory.triplets if c.agent_name == agent]
            values = [reward.value for reward in trajectory.rewards if reward.name == agent]
            if calls:
                acted.append((trajectory, calls, values[0]))
        scores = [score for _, _, score in acted]
        if len(scores) < 2:
            continue
        spread = stdev(scores)
        for trajectory, calls, score in acted:
            advantage = (score - fmean(scores)) / (spread + 1e-6) if spread else 0.0
            found |= {(trajectory.rollout_id, call): advantage for call in calls}
    return found


def advantages_of(rows: BatchRows, groups: list[Group]) -> dict[tuple[str, int], float]:
    """The same of a batch, by the tokens of each call, which no two calls of a rollout share."""
    calls = {
        (t.rollout_id, bytes(c.prompt_token_ids + c.response_token_ids)): c.call_index
        for group in groups
        for t in group.trajectories
        for c in t.triplets
    }
    found: dict[tuple[str, int], float] = {}
    for row in rows.rows:
        assert len(row.spans) == 1, "random calls are not continued"
        rollout_id = rows.rollout_ids[row.rollout]
        found[rollout_id, calls[rollout_id, row.segment.token_ids]] = row.spans[0].advantage
    return found


@pytest.mark.parametrize("seed", range(20))
def test_each_group_is_normalised_within_its_policy(seed: int) -> None:
    groups = [
        Group(
            f"{seed}-{g}",
            tuple(
                team_trajectory(f"{seed}-{g}-{i}", group_id=f"{seed}-{g}", group_size=5, run_id="r", policy_version=0)
                for i in range(5)
            ),
        )
        for g in range(4)
    ]
    split = split_groups(groups, {"planner": PLANNER, "solver": SOLVER})
    parts = {name: select_rows(of_policy) for name, of_policy in split.groups.items()}
    expected = {name: slow_advantages(groups, name) for name in ("planner", "solver")}
    for name, rows in parts.items():
        found = advantages_of(rows, groups)
        assert found.keys() == expected[name].keys()
        assert found == pytest.approx(expected[name], rel=1e-9, abs=1e-9)

    account = split.account(parts)
    for group in groups:
        for t in group.trajectories:
            key = t.rollout_id, t.attempt_id
            mine = [expected.get(c.agent_name or "", {}).get((t.rollout_id, c.call_index)) for c in t.triplets]
            assert account.triplets_used[key] == sum(1 for advantage in mine if advantage)
            reasons = {
                "frozen_agent": sum(c.agent_name == "critic" for c in t.triplets),
                "no_signal": sum(advantage == 0 for advantage in mine),
            }
            reasons["not_comparable"] = len(t.triplets) - account.triplets_used[key] - sum(reasons.values())
            assert account.not_trained[key] == {name: count for name, count in reasons.items() if count}


def test_a_rollout_is_scored_by_the_rewards_of_the_policys_own_calls() -> None:
    def rollout(number: int, planner: float, solver: float) -> Trajectory:
        calls = [
            make_triplet([1, 2], [3 + number], call_index=place).model_copy(update={"model": f"{name}@0"})
            for place, name in enumerate(("solver", "planner"))
        ]
        rewards = [
            RewardRecord(value=value, span_id=f"{place:016x}", call_index=place)
            for place, value in enumerate((solver, planner))
        ]
        made = make_trajectory(f"r{number}", group_id="g", reward=None, triplets=calls)
        return made.model_copy(update={"rewards": rewards})

    groups = [Group("g", (rollout(0, 1.0, 0.5), rollout(1, 0.0, 0.5)))]
    split = split_groups(groups, {"planner": AgentPolicy(), "solver": AgentPolicy()})
    planner, solver = (select_rows(split.groups[name]) for name in ("planner", "solver"))
    assert planner.scores == [1.0, 0.0]
    assert solver.scores == [0.5, 0.5]
    assert planner.has_signal
    assert not solver.has_signal


def test_a_call_that_another_policy_sampled_is_not_trained_on() -> None:
    calls = [
        make_triplet([1], [2], call_index=i).model_copy(update={"agent_name": "planner", "model": model})
        for i, model in enumerate(("planner@0", "solver@0", "policy@0", ""))
    ]
    groups = [Group("g", tuple(make_trajectory(f"r{i}", reward=float(i), triplets=calls) for i in range(2)))]
    split = split_groups(groups, {"planner": AgentPolicy(agents="planner"), "solver": SOLVER})
    account = split.account({name: select_rows(of_policy) for name, of_policy in split.groups.items()})
    assert account.triplets_used == {("r0", "r0-a1"): 1, ("r1", "r1-a1"): 1}
    assert account.not_trained == {("r0", "r0-a1"): {"other_policy": 3}, ("r1", "r1-a1"): {"other_policy": 3}}


def test_a_rollout_without_calls_counts_once_and_in_every_group() -> None:
    acted = make_triplet([1], [2]).model_copy(update={"agent_name": "planner", "model": "planner@0"})
    groups = [
        Group(
            "g", (make_trajectory("r0", reward=1.0, triplets=[acted]), make_trajectory("r1", reward=0.0, triplets=[]))
        )
    ]
    policies = {"planner": AgentPolicy(agents="planner"), "solver": AgentPolicy(agents="solver")}
    split = split_groups(groups, policies)
    parts = {name: select_rows(of_policy) for name, of_policy in split.groups.items()}
    assert parts["planner"].rows[0].spans[0].advantage == pytest.approx(math.sqrt(0.5), abs=1e-5)
    account = split.account(parts)
    assert account.excluded == {"no_calls": 1}
    assert account.not_trained == {("r0", "r0-a1"): {}, ("r1", "r1-a1"): {"no_calls": 1}}


def test_each_policy_learns_as_if_it_were_alone(together: Team, tmp_path: Path) -> None:
    adapters = together.train()
    assert adapters["planner"] != adapters["solver"]
    for name, policy in {"planner": PLANNER, "solver": SOLVER}.items():
        assert Team(tmp_path / name, {name: policy}).train() == {name: adapters[name]}


def test_one_policy_of_all_agents_is_the_adapter_of_a_run_without_policies(tmp_path: Path) -> None:
    one = Team(tmp_path / "one", {"all": AgentPolicy(agents="", lora_rank=4)})
    plain = Team(tmp_path / "plain", {}, lora_rank=4, served_model="all")
    for run in (one, plain):
        run.log = [
            t.model_copy(
                update={"triplets": [c.model_copy(update={"model": f"all@{c.policy_version}"}) for c in t.triplets]}
            )
            for t in run.log
        ]
        run.train(3)
    base = load_file(checkpoint_in(one.folder, one.ledger.resources[0].checkpoint_url) / "model.safetensors")
    adapter = load_file(one.adapter("all@3", -1) / ADAPTER)
    merged = load_file(checkpoint_in(plain.folder, plain.ledger.resources[-1].checkpoint_url) / "model.safetensors")
    for name, weight in base.items():
        layer = f"base_model.model.{name.removesuffix('.weight')}"
        if f"{layer}.lora_A.weight" in adapter:
            weight += 16 / 4 * (adapter[f"{layer}.lora_B.weight"] @ adapter[f"{layer}.lora_A.weight"])
        assert torch.equal(weight, merged[name]), name


def test_each_policy_learns_as_if_it_were_alone_beside_a_reference(tmp_path: Path) -> None:
    """Passes without gradients, before the updates and between their mini-batches, leave each policy in its place."""
    options: dict[str, Any] = {"kl_reward_coefficient": 0.1, "kl_loss_coefficient": 0.5, "mini_batches_per_step": 2}
    both = Team(tmp_path / "both", {"planner": PLANNER, "solver": SOLVER}, checkpoint_every=1, **options).train(2)
    assert Team(tmp_path / "solver", {"solver": SOLVER}, **options).train(2) == {"solver": both["solver"]}


@pytest.mark.parametrize("every", [1, 3, 100])
def test_a_run_in_pieces_has_the_adapters_of_one_in_one_go(together: Team, tmp_path: Path, every: int) -> None:
    pieces = Team(tmp_path / "pieces", {"planner": PLANNER, "solver": SOLVER}, checkpoint_every=every)
    for steps in (1, 3, STEPS):
        adapters = pieces.train(steps)
    assert adapters == together.train()
    consumed = [(c.rollout_id, c.attempt_id) for step in pieces.ledger.steps for c in step.consumed]
    assert len(consumed) == len(set(consumed)) == STEPS * TASKS * SIZE
    assert [step.consumed for step in pieces.ledger.steps] == [step.consumed for step in together.ledger.steps]


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_frozen_policy_and_the_model_stay_as_they_are(together: Team, tmp_path: Path) -> None:
    trained = together.adapter(f"solver@{STEPS}", -1)
    before = files_of(trained)
    team = Team(tmp_path / "frozen", {"planner": PLANNER, "solver": replace(SOLVER, frozen=True, adapter=trained)})
    adapters = team.train()
    first = checkpoint_in(team.folder, team.ledger.resources[0].checkpoint_url)
    assert adapters == {"planner": together.train()["planner"], "solver": before[ADAPTER]}
    assert files_of(trained) == before
    assert (first / "model.safetensors").read_bytes() == (team.options["model"] / "model.safetensors").read_bytes()
    for version, record in enumerate(team.ledger.resources):
        assert record.adapters.keys() == {f"run/planner@{version}", "run/solver@0"}
        assert checkpoint_in(team.folder, record.adapters["run/solver@0"]) == first / "solver"
        models = {name: json.loads(text)["model"] for name, text in record.resources.items()}
        assert models == {"main_llm": "run@0", "planner": f"run/planner@{version}", "solver": "run/solver@0"}
    assert {path.name for path in checkpoint_in(team.folder, team.ledger.resources[-1].checkpoint_url).iterdir()} == {
        "planner"
    }
    solver = sum(c.agent_name == "solver" for t in team.log for c in t.triplets)
    critic = sum(c.agent_name == "critic" for t in team.log for c in t.triplets)
    frozen = sum(c.not_trained.get("frozen_agent", 0) for step in team.ledger.steps for c in step.consumed)
    assert frozen == solver + critic


def test_a_policy_without_a_signal_is_unchanged_while_the_others_learn(tmp_path: Path) -> None:
    team = Team(tmp_path / "silent", {"planner": PLANNER, "solver": SOLVER})
    team.log = [
        t.model_copy(
            update={"rewards": [r.model_copy(update={"value": 1.0}) if r.name == "solver" else r for r in t.rewards]}
        )
        for t in team.log
    ]
    team.train(2)
    of = [
        {policy_of_model(name): checkpoint_in(team.folder, f) / ADAPTER for name, f in r.adapters.items()}
        for r in team.ledger.resources
    ]
    assert of[2]["solver"].read_bytes() == of[1]["solver"].read_bytes() == of[0]["solver"].read_bytes()
    assert of[2]["planner"].read_bytes() != of[1]["planner"].read_bytes()
    assert [step.outcome for step in team.ledger.steps] == [StepOutcome.UPDATED] * 2
    assert "policy/solver/grad_norm" not in team.ledger.steps[0].metrics
    assert team.ledger.steps[0].metrics["policy/planner/grad_norm"] > 0


def test_ranks_and_rates_of_their_own(tmp_path: Path) -> None:
    """A smaller rank is the larger one with zeros, which stay zeros; and a rate is that policy's alone."""
    solver = replace(SOLVER, lora_rank=2, lora_alpha=8, learning_rate=3e-3)
    team = Team(tmp_path / "both", {"planner": PLANNER, "solver": solver}, lr_warmup_steps=2, checkpoint_every=2)
    for steps in (1, 2, 3):
        adapters = team.train(steps)
    whole = Team(tmp_path / "whole", {"planner": PLANNER, "solver": solver}, lr_warmup_steps=2).train(3)
    assert adapters == whole
    alone = Team(tmp_path / "alone", {"solver": solver}, lr_warmup_steps=2)
    alone.train(3)
    ours, theirs = (load_file(run.adapter("solver@3", -1) / ADAPTER) for run in (team, alone))
    assert {tuple(t.shape)[0 if "lora_A" in n else 1] for n, t in ours.items()} == {2}
    for name, tensor in theirs.items():
        assert torch.allclose(ours[name], tensor, rtol=0, atol=1e-4), name
    assert team.ledger.steps[2].metrics["policy/planner/lr"] == pytest.approx(1e-2)
    assert team.ledger.steps[2].metrics["policy/solver/lr"] == pytest.approx(3e-3)


def test_a_further_policy_takes_the_memory_of_its_adapter_alone(together: Team) -> None:
    """Its weights and the optimiser's two moments, in float32: none of the model. Counted in the engine."""

    def bytes_of(policies: dict[str, AgentPolicy]) -> int:
        first = checkpoint_in(together.folder, together.ledger.resources[0].checkpoint_url)
        options: dict[str, Any] = {**together.options, "policies": policies}
        engine = VerlEngine(VERL(steps=1, **options), first)
        groups = [Group("g", tuple(t for t in together.log if t.group_id == "run-s1-g0"))]
        for name, of_policy in split_groups(groups, policies).groups.items():
            engine.update(build_arrays(select_rows(of_policy)), policy=name)
        gc.collect()
        tensors = {t.data_ptr(): t for t in gc.get_objects() if issubclass(type(t), torch.Tensor) and t.numel()}
        return sum(t.numel() * t.element_size() for t in tensors.values())

    adapter = load_file(
        checkpoint_in(together.folder, together.ledger.resources[0].checkpoint_url) / "solver" / ADAPTER
    )
    floats = 4 * sum(tensor.numel() for tensor in adapter.values())
    bytes_of({"planner": PLANNER})  # what is made once in a process
    further = bytes_of({"planner": PLANNER, "solver": SOLVER}) - bytes_of({"planner": PLANNER})
    assert 3 * floats <= further <= 3.1 * floats


def options_again(policies: dict[str, AgentPolicy]) -> VERL:
    verl = VERL(model="m", steps=1, policies=policies)
    assert VERL(**options_of(verl.as_json())) == verl
    return verl


def test_options_of_a_run_name_its_policies() -> None:
    verl = options_again({"planner": PLANNER, "solver": replace(SOLVER, adapter="folder", frozen=True)})
    assert verl.made_with()["policy planner"] == "rank 4, alpha 16"
    assert verl.trained_policies() == {"planner"}


@pytest.mark.parametrize(
    ("policies", "others", "message"),
    [
        ({"a": AgentPolicy(frozen=True)}, {}, "nothing to train"),
        ({"a@1": AgentPolicy()}, {}, "name 'a@1'"),
        ({"main_llm": AgentPolicy()}, {}, "as the model that all of them share"),
        ({"a": AgentPolicy(agents="x"), "b": AgentPolicy(agents="x")}, {}, "'a' and 'b' have the same agents"),
        ({"a": AgentPolicy()}, {"lora_rank": 4}, "lora_rank is 4"),
        ({"a": AgentPolicy()}, {"engine": "ray"}, "engine is 'ray'"),
        ({"a": AgentPolicy()}, {"servers": VllmOptions()}, "served by the policy server"),
        ({"a": AgentPolicy()}, {"advantage": "gae"}, "policies have none each"),
    ],
)
def test_policies_that_cannot_be_trained_together(
    policies: dict[str, AgentPolicy], others: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        VERL(model="m", steps=1, policies=policies, **others)


def test_a_rank_that_the_server_does_not_allow_is_refused_before_anything_starts(settings: Settings) -> None:
    settings = settings.model_copy(update={"policy_lora_rank_max": 4, "proxy_url": "http://127.0.0.1:9"})
    model = make_tiny_model(settings.data_dir / "model")
    with pytest.raises(SettingsError, match="policy 'b' has the lora_rank 8; the policy server allows 4"):
        VERL(model=model, steps=1, policies={"a": PLANNER, "b": AgentPolicy(lora_rank=8)}).check(settings)
    VERL(model=model, steps=1, policies={"a": PLANNER}).check(settings)
    with pytest.raises(SettingsError, match="LIGHTSTREAM_LLM_MODEL is 'other'"):
        VERL(model=model, steps=1, policies={"a": PLANNER}).check(settings.model_copy(update={"llm_model": "other"}))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lora_rank": 0}, "lora_rank is 0"),
        ({"learning_rate": math.inf}, "learning_rate is inf"),
        ({"agents": "("}, r"not a regular expression"),
    ],
)
def test_a_policy_that_cannot_be(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        AgentPolicy(**values)


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        (
            {"planner": replace(PLANNER, agents="planer")},
            r"matches 'planer', of policy 'planner'; the agents are 'critic'",
        ),
        ({"writer": AgentPolicy()}, "no call was sampled by policy 'writer'; there are calls of .*'planner@0'"),
        ({"planner": PLANNER, "other": AgentPolicy(agents="plan")}, "'planner' belongs to 2 policies: planner, other"),
    ],
)
def test_agents_that_match_none_or_two_policies_stop_before_anything_is_trained(
    tmp_path: Path, policies: dict[str, AgentPolicy], message: str
) -> None:
    team = Team(tmp_path / "run", policies)
    with pytest.raises(TrainingError, match=message):
        team.train(1)
    assert team.ledger.steps == []
    if "planner" in policies:
        team.options["policies"] = {"planner": PLANNER}
        assert team.train(1), "the same run goes on"


def test_an_adapter_of_another_model_is_refused(tmp_path: Path) -> None:
    small = Team(tmp_path / "small", {"planner": replace(PLANNER, lora_rank=2)})
    small.train(1)
    folder = small.adapter("planner@0", 0)
    large = make_tiny_model(tmp_path / "large", hidden_size=96)
    other = Team(tmp_path / "other", {"planner": replace(PLANNER, adapter=folder)}, model=large)
    with pytest.raises(TrainingError, match=r"policy 'planner' begins with, does not fit\. \d+ tensors"):
        other.train(1)
    assert other.ledger.resources == []
    (folder / "adapter_config.json").write_text('{"peft_type": "IA3", "r": 2, "lora_alpha": 1}')
    with pytest.raises(TrainingError, match="of another kind"):
        Team(tmp_path / "third", {"planner": replace(PLANNER, adapter=folder)}).train(1)
