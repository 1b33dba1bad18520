"""Recorded rollouts of a system of agents: a planner and a solver, each of its own policy, and a critic of none."""

from __future__ import annotations

import random

from lightstream.schemas.records import RewardRecord, Trajectory, TripletRecord

from .trajectories import make_trajectory, make_triplet

AGENTS = {"planner": "planner", "solver": "solver", "critic": "policy"}
"""Agent -> the policy whose model it calls."""


def team_trajectory(
    rollout_id: str, *, group_id: str, group_size: int, run_id: str, policy_version: int, all_act: bool = False
) -> Trajectory:
    """A rollout that follows from its ids alone: some agents make calls, or all, and each policy has a reward."""
    chance = random.Random(rollout_id)
    calls: list[TripletRecord] = []
    acting = [*AGENTS, "solver"] if all_act else chance.choices(list(AGENTS), k=chance.randint(1, 5))
    for agent in acting:
        response = [chance.randrange(3, 259) for _ in range(chance.randint(1, 5))]
        version = 0 if agent == "critic" else policy_version
        made = make_triplet(
            [chance.randrange(3, 259) for _ in range(chance.randint(4, 12))],
            response,
            [-5.0 - chance.random() for _ in response],
            policy_version=version,
            call_index=len(calls),
        )
        calls.append(made.model_copy(update={"agent_name": agent, "model": f"{AGENTS[agent]}@{version}"}))
    rewards = [
        RewardRecord(name=name, value=float(chance.randrange(2)), span_id=f"{number:016x}", dimension=number)
        for number, name in enumerate(("planner", "solver"))
    ]
    made_by_all = make_trajectory(
        rollout_id,
        group_id=group_id,
        group_size=group_size,
        run_id=run_id,
        reward=sum(reward.value for reward in rewards),
        triplets=calls,
    )
    return made_by_all.model_copy(update={"rewards": rewards})
