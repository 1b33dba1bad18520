"""Tokens and time of an update: distinct tokens, padding, and the rows that have a signal.

``python -m benchmarks.update`` prints a table, and with ``--json`` one JSON object. ``computed_per_distinct``: rollouts
of five turns, tokens of the batch by their distinct tokens. ``padded_per_real`` and ``micro_batch_max_per_limit``:
log-normal lengths (sigma 1), padded by real tokens, and the largest micro-batch of several rows by its limit.
``time_without_signal``: an update of which half of the groups have no signal, by the same with every row computed (an
entropy bonus of 1e-30 asks for that); alternately, the median of the ratios.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.schemas.records import AttemptStatus, RolloutMode, RolloutStatus, Trajectory, TripletRecord
from lightstream.trainers import VERL, make_tiny_model
from lightstream.trainers.engines.verl.engine import VerlEngine
from lightstream.trainers.engines.verl.tensors import micro_batches
from lightstream.trainers.rollouts.batch import BatchArrays, build_arrays, select_rows
from lightstream.trainers.rollouts.groups import Group

from .command import run

TURNS, PROMPT, RESPONSE, BETWEEN = 5, 60, 40, 15
GROUP_SIZE = 8
LIMIT = 16_384


def measure(*, groups: int = 16, rounds: int = 7) -> dict[str, float]:
    """Ratios, and milliseconds of an update."""
    chance = np.random.default_rng(0)
    made = [_group(number, chance) for number in range(groups)]
    arrays = build_arrays(select_rows(made))
    distinct = groups * GROUP_SIZE * (PROMPT + TURNS * RESPONSE + (TURNS - 1) * BETWEEN)
    lengths = np.exp(chance.normal(5.5, 1.0, size=2048)).astype(int).clip(1).tolist()
    parts = micro_batches(lengths, LIMIT)
    sizes = [len(part) * max(lengths[row] for row in part) for part in parts]
    some, everything = _times(arrays, rounds)
    return {
        "computed_per_distinct": arrays.tokens / distinct,
        "padded_per_real": sum(sizes) / sum(lengths),
        "micro_batch_max_per_limit": max(s for s, p in zip(sizes, parts, strict=True) if len(p) > 1) / LIMIT,
        "update_ms": median(some) * 1e3,
        "update_of_every_row_ms": median(everything) * 1e3,
        "time_without_signal": median(a / b for a, b in zip(some, everything, strict=True)),
    }


def _times(arrays: BatchArrays, rounds: int) -> tuple[list[float], list[float]]:
    seconds: dict[float, list[float]] = {0.0: [], 1e-30: []}
    with tempfile.TemporaryDirectory() as folder:
        model = make_tiny_model(Path(folder) / "model")
        engines = {
            entropy: VerlEngine(VERL(model=model, steps=1, threads=1, entropy_coefficient=entropy), model)
            for entropy in seconds
        }
        for number in range(rounds + 1):
            for entropy, engine in engines.items():
                began_s = time.perf_counter()
                engine.update(arrays, seed=(number,))
                if number:  # the first is not counted
                    seconds[entropy].append(time.perf_counter() - began_s)
    return seconds[0.0], seconds[1e-30]


def _group(number: int, chance: np.random.Generator) -> Group:
    """Of every second group, all rollouts have one reward."""
    rewards = chance.random(GROUP_SIZE) if number % 2 else np.full(GROUP_SIZE, 0.5)
    name = f"g{number}"
    return Group(name, tuple(rollout_of(f"{name}-{i}", float(reward), chance) for i, reward in enumerate(rewards)))


def rollout_of(name: str, reward: float, chance: np.random.Generator) -> Trajectory:
    """A rollout of five calls that continue each other."""
    history = chance.integers(3, 259, PROMPT).tolist()
    triplets: list[TripletRecord] = []
    for call in range(TURNS):
        response = chance.integers(3, 259, RESPONSE).tolist()
        triplets.append(
            TripletRecord(
                call_index=call,
                span_id=f"{call:016x}",
                trace_id="0" * 32,
                policy_version=0,
                prompt_token_ids=pack_int32(history),
                response_token_ids=pack_int32(response),
                response_logprobs=pack_float32([-5.5] * RESPONSE),
                response_mask=b"\x01" * RESPONSE,
            )
        )
        history = [*history, *response, *chance.integers(3, 259, BETWEEN).tolist()]
    return Trajectory(
        rollout_id=name,
        attempt_id=name,
        attempt_sequence=1,
        mode=RolloutMode.TRAIN,
        status=AttemptStatus.SUCCEEDED,
        rollout_status=RolloutStatus.SUCCEEDED,
        final=True,
        reward=reward,
        triplets=triplets,
    )


def main() -> None:
    """Print the figures."""
    run(__doc__, measure, groups=16, rounds=7)


if __name__ == "__main__":
    main()
