"""verl's own trainer as we extend it: names overridden, their parameters, the order of a step, keys of configuration.

Its module needs TransferQueue, which is not in this environment: it is read, not imported.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import lightstream.trainers.verl_on_ray as ours
from lightstream.schemas.errors import SettingsError, TrainingError
from lightstream.trainers import VERL, AgentPolicy
from lightstream.trainers.verl_in_process.runtime import load_verl
from lightstream.trainers.verl_in_process.verl_keys import verl_defaults
from lightstream.trainers.verl_on_ray.ppo_places import Places
from lightstream.trainers.verl_on_ray.ppo_settings import TRAINER, UNLISTED, new_configuration, verl_settings

pytestmark = pytest.mark.filterwarnings("ignore:Ray state API:DeprecationWarning")  # of what verl imports

OVERRIDDEN = {
    "__init__",
    "_balance_batch",
    "_build_replay_buffer",
    "_compute_advantage",
    "_compute_old_log_prob",
    "_compute_ref_log_prob",
    "_init_dataloader",
    "_init_resource_pool_mgr",
    "_load_checkpoint",
    "_update_actor",
    "on_sample_end",
    "on_step_end",
    "prepare_step",
}
OWN = {"train", "reference_logprobs", "close"}
CALLED = {"init", "step", "_init_dump_executor", "_shutdown_dump_executor"}
ORDER = [
    "on_sample_begin",
    "sample",
    "on_sample_end",
    "_compute_reward_colocate",
    "_balance_batch",
    "_compute_old_log_prob",
    "_compute_ref_log_prob",
    "_compute_values",
    "_compute_advantage",
    "_update_critic",
    "_update_actor",
]


def class_of(path: Path, name: str) -> ast.ClassDef:
    return next(
        node for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.ClassDef) and node.name == name
    )


@cache
def theirs() -> ast.ClassDef:
    found = find_spec("verl")
    assert found is not None
    assert found.submodule_search_locations
    return class_of(Path(found.submodule_search_locations[0]) / "trainer/ppo/v1/trainer_base.py", "PPOTrainer")


@cache
def our_trainer() -> ast.ClassDef:
    return class_of(Path(ours.__path__[0]) / "ppo_trainer.py", "LightstreamTrainer")


def methods(of: ast.ClassDef) -> dict[str, list[str]]:
    """Name -> names of the parameters."""
    return {
        node.name: [argument.arg for argument in node.args.args]
        for node in of.body
        if isinstance(node, ast.FunctionDef)
    }


def calls_of(name: str) -> list[str]:
    """Return what a method of verl's calls of itself and of what it has, in the order of the text."""
    method = next(node for node in theirs().body if isinstance(node, ast.FunctionDef) and node.name == name)
    called = [node.func for node in ast.walk(method) if isinstance(node, ast.Call)]
    of_self = [func for func in called if isinstance(func, ast.Attribute) and ast.unparse(func).startswith("self.")]
    return [func.attr for func in sorted(of_self, key=lambda func: func.lineno)]


def test_each_name_that_is_overridden_is_there_with_its_parameters() -> None:
    verls, our = methods(theirs()), methods(our_trainer())
    public = {name for name in our if name in verls or not name.startswith("_")}
    assert public == OVERRIDDEN | OWN
    assert verls.keys() >= OVERRIDDEN
    assert not OWN & verls.keys()
    for name in OVERRIDDEN - {"__init__"}:
        assert our[name] == verls[name], name
    private = {name for name in our if name.startswith("_")} - OVERRIDDEN
    assert not private & verls.keys(), "one of ours would be called by verl"
    assert verls["__init__"] == ["self", "config"]
    assert verls.keys() >= CALLED


def test_what_verl_wants_of_its_trainers_is_overridden() -> None:
    abstract = {
        node.name
        for node in theirs().body
        if isinstance(node, ast.FunctionDef) and "abstractmethod" in map(ast.unparse, node.decorator_list)
    }
    assert abstract == {"on_sample_end", "on_step_end"}


def test_it_is_registered_by_its_name() -> None:
    assert [ast.unparse(decorator) for decorator in our_trainer().decorator_list] == ["register_trainer(TRAINER)"]
    assert [ast.unparse(base) for base in our_trainer().bases] == ["PPOTrainer"]
    assert TRAINER == "lightstream"


def test_a_step_is_made_in_the_order_that_it_was() -> None:
    assert [name for name in calls_of("_step_once") if name in ORDER] == ORDER
    assert [name for name in calls_of("step") if name in ("prepare_step", "_step_once")] == [
        "prepare_step",
        "_step_once",
    ]


def test_no_servers_are_started_where_a_trainer_opts_out() -> None:
    setup = next(node for node in theirs().body if isinstance(node, ast.FunctionDef) and node.name == "_setup")
    text = ast.unparse(setup)
    assert "getattr(self, '_enable_hybrid_replicas', True)" in text
    assert "LLMServerManager.create_empty" in text
    assigned = {ast.unparse(node) for node in our_trainer().body if isinstance(node, ast.Assign)}
    assert "_enable_hybrid_replicas = False" in assigned


def test_the_worker_has_the_methods_that_are_called_and_hides_none() -> None:
    load_verl("cpu")
    from verl.single_controller.base.decorator import MAGIC_ATTR
    from verl.workers.engine_workers import ActorRolloutRefWorker

    from lightstream.trainers.verl_on_ray.ppo_worker import LightstreamWorker

    verls: Any = ActorRolloutRefWorker
    expected = {
        "__init__": ["self", "config", "role", "distillation_config", "kwargs"],
        "init_model": ["self"],
        "set_loss_fn": ["self", "loss_fn"],
        "compute_log_prob": ["self", "data"],
        "compute_ref_log_prob": ["self", "data"],
        "update_actor": ["self", "data"],
    }
    for name, parameters in expected.items():
        assert list(inspect.signature(inspect.unwrap(getattr(verls, name))).parameters) == parameters
    for name in ("load", "save", "save_weights", "start_step", "finish_step"):
        assert hasattr(getattr(LightstreamWorker, name), MAGIC_ATTR)
        assert not hasattr(verls, name)


def settings(**changes: Any) -> dict[str, Any]:
    config = VERL(model="m", steps=7, engine="verl", **changes)
    return verl_settings(config, folder=Path("here"), device="cpu", attention="sdpa")


def test_each_key_that_is_set_is_verls() -> None:
    load_verl("cpu")
    from verl.workers.config import FSDPEngineConfig

    assert settings().keys() - UNLISTED <= verl_defaults().keys()
    assert {key.rpartition(".")[2] for key in UNLISTED} <= {
        field.name for field in dataclasses.fields(FSDPEngineConfig)
    }
    with pytest.raises(TrainingError, match=r"actor_rollout_ref\.actor\.optim\.speed"):
        new_configuration({"actor_rollout_ref.actor.optim.speed": 1}, {})


def test_the_configuration_says_what_the_options_do() -> None:
    load_verl("cpu")
    from verl.trainer.ppo.utils import need_critic, need_reference_policy

    made = new_configuration(
        settings(processes=4, nodes=2, learning_rate=3e-4, kl_reward_coefficient=0.1), {"threads": 1}
    )
    assert (made.trainer.nnodes, made.trainer.n_gpus_per_node) == (2, 2)
    assert made.actor_rollout_ref.actor.optim.lr == 3e-4
    assert made.actor_rollout_ref.lightstream.threads == 1
    assert made.reward.num_workers == 0
    assert made.trainer.v1.trainer_mode == TRAINER
    assert need_reference_policy(made)
    assert not need_critic(made)
    assert not need_reference_policy(new_configuration(settings(), {}))


def test_what_it_would_not_do_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match=r"lora_rank is 4, which engine=\"verl\" does not do"):
        VERL(model="m", steps=1, engine="verl", lora_rank=4)
    with pytest.raises(SettingsError, match=r"advantage is 'gae', which engine=\"verl\" does not do"):
        VERL(model="m", steps=1, engine="verl", advantage="gae")
    with pytest.raises(SettingsError, match="its engine 'verl'"):
        VERL(model="m", steps=1, engine="verl", policies={"one": AgentPolicy(agents="a")})
    with pytest.raises(SettingsError, match="processes are 3, which 2 nodes cannot share equally"):
        VERL(model="m", steps=1, engine="verl", processes=3, nodes=2)


def test_verls_own_keys_choose_it() -> None:
    keys = {"actor_rollout_ref.model.path": "m", "trainer.total_training_steps": 1}
    machines = {"trainer.nnodes": 2, "trainer.n_gpus_per_node": 8}
    chosen = VERL(config=keys | machines | {"trainer.v1.trainer_mode": "lightstream"})
    assert (chosen.engine, chosen.nodes, chosen.processes) == ("verl", 2, 16)
    assert VERL(config=keys | {"trainer.v1.trainer_mode": "sync"}).engine == "auto"
    with pytest.raises(SettingsError, match="trainer_mode='separate_async': steps_ahead is the option here"):
        VERL(config=keys | {"trainer.v1.trainer_mode": "separate_async"})


def test_what_is_not_installed_is_named(tmp_path: Path) -> None:
    if find_spec("transfer_queue") is not None:
        pytest.skip("TransferQueue is installed here")
    config = VERL(model="m", steps=1, engine="verl", device="cpu")
    with pytest.raises(TrainingError, match="TransferQueue is not installed") as told:
        config.new_engine(tmp_path)
    assert "lightstream-rl[verl-ray]" in told.value.next_step


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("passes", [[[[0, 2, 3, 4, 7]]], [[[0, 3, 7], [2], [4]], [[7, 2], [0, 3, 4]]]])
def test_each_row_has_a_place_in_its_mini_batch_of_each_pass(passes: list[list[list[int]]], processes: int) -> None:
    load_verl("cpu")
    lengths = [9, 5, 31, 8, 2, 6, 6, 12]
    places = Places.of(passes, lengths, processes)
    parts = [part for of_pass in passes for part in of_pass]
    assert places.parts == len(parts)
    each, left = divmod(len(places.rows), processes * len(parts))
    assert left == 0
    idle = len(lengths)
    for number, part in enumerate(parts):
        found = [
            row
            for process in range(processes)
            for row in places.rows[(process * len(parts) + number) * each :][:each]
            if row != idle
        ]
        assert sorted(found) == sorted(part)
    once = [row for row, first in zip(places.rows, places.first, strict=True) if first and row != idle]
    assert sorted(once) == [0, 2, 3, 4, 7]
    assert sum(places.first) % processes == 0
