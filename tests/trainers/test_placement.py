"""The order of ranks: those of one machine beside each other."""

from __future__ import annotations

import json

import pytest

from lightstream.schemas.errors import SettingsError
from lightstream.trainers import VERL
from lightstream.trainers.engines.ray.engine import node_order
from lightstream.trainers.engines.verl.config import options_of


def test_ranks_follow_the_nodes() -> None:
    assert node_order({0: "a", 1: "b", 2: "a", 3: "b"}) == [0, 2, 1, 3]
    assert node_order({1: "a", 0: "b", 2: "b"}) == [0, 2, 1]
    assert node_order({0: "only"}) == [0]


def test_processes_that_nodes_cannot_share_equally_are_refused() -> None:
    with pytest.raises(SettingsError, match="processes are 3, which 2 nodes cannot share equally"):
        VERL(model="m", steps=1, processes=3, nodes=2)


def test_verls_keys_say_nodes_and_processes() -> None:
    keys = {"actor_rollout_ref.model.path": "m", "trainer.total_training_steps": 1}
    machines = {"trainer.nnodes": 2, "trainer.n_gpus_per_node": 8}
    chosen = VERL(config=keys | machines)
    assert (chosen.engine, chosen.nodes, chosen.processes) == ("auto", 2, 16)
    for mode in ("lightstream", "separate_async"):
        with pytest.raises(SettingsError, match=f"trainer_mode='{mode}': steps_ahead is the option here"):
            VERL(config=keys | {"trainer.v1.trainer_mode": mode})


def test_a_recorded_run_of_verls_own_trainer_is_made_again_by_ray() -> None:
    options = json.loads(VERL(model="m", steps=1, processes=2).as_json())
    assert VERL(**options_of(json.dumps(options | {"engine": "verl"}))).engine == "ray"
