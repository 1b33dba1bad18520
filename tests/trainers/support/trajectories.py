"""Trajectories made by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence

from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.schemas.records import AttemptStatus, RolloutMode, RolloutStatus, Trajectory, TripletRecord
from lightstream.trainers.rollouts.batch import OwnPolicy

NEWEST = 9
"""The current version of :func:`own_from`."""


def own_from(oldest: int) -> OwnPolicy:
    """The policy of triplets that name no model, of which versions ``oldest`` to 9 may be trained on."""
    return OwnPolicy(name="", run_id="run", version=NEWEST, versions_back=NEWEST - oldest)


def make_triplet(
    prompt: Sequence[int],
    response: Sequence[int],
    logprobs: Sequence[float] | None = None,
    *,
    reward: float | None = 1.0,
    policy_version: int | None = 0,
    call_index: int = 0,
) -> TripletRecord:
    return TripletRecord(
        call_index=call_index,
        span_id=f"{call_index:016x}",
        trace_id="0" * 32,
        policy_version=policy_version,
        prompt_token_ids=pack_int32(prompt),
        response_token_ids=pack_int32(response),
        response_logprobs=pack_float32([-1.0] * len(response) if logprobs is None else logprobs),
        response_mask=b"\x01" * len(response),
        reward=reward,
    )


def make_trajectory(
    rollout_id: str,
    *,
    group_id: str | None = None,
    group_size: int = 1,
    run_id: str = "run",
    attempt: int = 1,
    revision: int = 0,
    final: bool = True,
    reward: float | None = 1.0,
    triplets: Sequence[TripletRecord] | None = None,
    mode: RolloutMode = RolloutMode.TRAIN,
) -> Trajectory:
    return Trajectory(
        rollout_id=rollout_id,
        attempt_id=f"{rollout_id}-a{attempt}",
        attempt_sequence=attempt,
        revision=revision,
        run_id=run_id,
        mode=mode,
        group_id=group_id,
        group_size=group_size,
        status=AttemptStatus.SUCCEEDED,
        rollout_status=RolloutStatus.SUCCEEDED,
        final=final,
        reward=reward,
        triplets=list(triplets) if triplets is not None else [make_triplet([1, 2], [3], reward=reward)],
        call_count=1,
    )


def random_trajectory(
    rollout_id: str, *, group_id: str, group_size: int, run_id: str, policy_version: int
) -> Trajectory:
    """A trajectory that follows from its ids alone: the same in every run of a test."""
    chance = random.Random(rollout_id)
    reward = float(chance.randrange(2))
    calls = [
        make_triplet(
            [chance.randrange(3, 259) for _ in range(chance.randint(4, 12))],
            response := [chance.randrange(3, 259) for _ in range(chance.randint(1, 5))],
            [-5.0 - chance.random() for _ in response],
            reward=reward,
            policy_version=policy_version,
            call_index=index,
        ).model_copy(update={"resources_id": f"{run_id}-v{policy_version}"})
        for index in range(chance.randint(1, 2))
    ]
    return make_trajectory(
        rollout_id, group_id=group_id, group_size=group_size, run_id=run_id, reward=reward, triplets=calls
    )
