"""From trajectories to a batch: 1,024 calls of 3,072 tokens, as a trainer has them once they are decoded.

``python -m benchmarks.batch`` prints a table, and with ``--json`` one JSON object. ``build_ms`` goes from groups of
trajectories to flat arrays, ``torch_ms`` from there to torch tensors, ``verl_ms`` to the TensorDict of verl's engine
(with advantages); ``decode_ms`` is what reading the records took before. CPU time of this process, best of the rounds.
Target: 100 ms for a batch from trajectories to tensors.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from lightstream.schemas.codec import Codec
from lightstream.schemas.records import AttemptStatus, RolloutMode, RolloutStatus, Trajectory, TripletRecord
from lightstream.trainers.engines.exports import select_trajectories, torch_batch, verl_batch
from lightstream.trainers.rollouts.batch import build_arrays

from .command import run

PROMPT_TOKENS, RESPONSE_TOKENS = 1024, 2048
GROUP_SIZE = 8
VOCABULARY = 150_000


def measure(*, rows: int = 1024, rounds: int = 7) -> dict[str, float]:
    """Milliseconds for a batch of ``rows`` calls."""
    chance = np.random.default_rng(0)
    trajectories = [_trajectory(number, chance) for number in range(rows)]
    codec = Codec()
    encoded = [codec.encode(trajectory) for trajectory in trajectories]
    decode_s, _ = _best(lambda: [codec.decode(value) for value in encoded], rounds)
    build_s, arrays = _best(lambda: build_arrays(select_trajectories(trajectories)), rounds)
    torch_s, tensors = _best(lambda: torch_batch(arrays), rounds)
    verl_s, _ = _best(lambda: verl_batch(arrays), rounds)
    assert len(arrays) == rows
    assert tensors["input_ids"].numel() == arrays.tokens == rows * (PROMPT_TOKENS + RESPONSE_TOKENS)
    return {
        "tokens": float(arrays.tokens),
        "decode_ms": decode_s * 1e3,
        "build_ms": build_s * 1e3,
        "torch_ms": torch_s * 1e3,
        "trajectories_to_torch_ms": (build_s + torch_s) * 1e3,
        "verl_ms": verl_s * 1e3,
        "trajectories_to_verl_ms": (build_s + verl_s) * 1e3,
        "load_average": os.getloadavg()[0],
    }


def _best(work: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    """CPU seconds of the fastest round, and what the last one gave. One round before is not counted."""
    result = work()
    seconds: list[float] = []
    for _ in range(rounds):
        started = time.process_time()
        result = work()
        seconds.append(time.process_time() - started)
    return min(seconds), result


def _trajectory(number: int, chance: np.random.Generator) -> Trajectory:
    rollout_id = f"rollout-{number:08d}"
    reward = float(number % 2)
    triplet = TripletRecord(
        call_index=0,
        span_id=f"{number + 1:016x}",
        trace_id=f"{number + 1:032x}",
        policy_version=7,
        prompt_token_ids=chance.integers(0, VOCABULARY, PROMPT_TOKENS).astype("<i4").tobytes(),
        response_token_ids=chance.integers(0, VOCABULARY, RESPONSE_TOKENS).astype("<i4").tobytes(),
        response_logprobs=(-chance.random(RESPONSE_TOKENS)).astype("<f4").tobytes(),
        response_mask=b"\x01" * RESPONSE_TOKENS,
        reward=reward,
    )
    return Trajectory(
        rollout_id=rollout_id,
        attempt_id=f"{rollout_id}-a1",
        attempt_sequence=1,
        mode=RolloutMode.TRAIN,
        group_id=f"group-{number // GROUP_SIZE}",
        group_size=GROUP_SIZE,
        status=AttemptStatus.SUCCEEDED,
        rollout_status=RolloutStatus.SUCCEEDED,
        final=True,
        reward=reward,
        triplets=[triplet],
        call_count=1,
    )


def main() -> None:
    """Measure and print."""
    run(__doc__, measure, rows=1024)


if __name__ == "__main__":
    main()
