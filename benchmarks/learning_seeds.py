"""Whether the demonstration's learning succeeds on every seed: the same model, tasks, rewards and updates, in memory.

``python -m benchmarks.learning_seeds`` prints a line a seed: the steps until the mean reward of five in a row was 0.95,
and the reward of the last five. No Kafka, no servers: what is measured is the algorithm alone. ``--json`` prints one
JSON object at the end.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from examples.tool_router.agent import prompt_of
from examples.tool_router.options import Options
from examples.tool_router.tasks import score
from examples.tool_router.tools import use_tool
from examples.tool_router.train import algorithm_of, tasks_of
from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.schemas.records import AttemptStatus, RolloutMode, RolloutStatus, Trajectory, TripletRecord
from lightstream.trainers import VERL
from lightstream.trainers.engines.verl.engine import VerlEngine
from lightstream.trainers.engines.verl.initial import write_initial_model
from lightstream.trainers.rollouts.batch import build_arrays, select_rows
from lightstream.trainers.rollouts.groups import Group
from lightstream.trainers.run.tasks import sample_indices

from .command import run

TARGET = 0.95
WINDOW = 5


def measure(*, seeds: int = 30, first: int = 0) -> dict[str, float]:
    """Train once for each seed."""
    took: list[float] = []
    reached = 0
    for seed in range(first, first + seeds):
        began_s = time.perf_counter()
        rewards = list(learn(replace(Options(), seed=seed)))
        last = fmean(rewards[-WINDOW:])
        reached += last >= TARGET
        took.append(float(len(rewards)))
        print(
            f"seed {seed:3d}  {len(rewards):3d} steps  last five {last:.3f}  {time.perf_counter() - began_s:.0f} s",
            file=sys.stderr,
            flush=True,
        )
    return {
        "seeds": float(seeds),
        "reached": float(reached),
        "steps_median": median(took),
        "steps_max": max(took),
    }


def learn(options: Options, *, lag: int = 0, **changes: Any) -> Iterator[float]:
    """Mean reward of each step, until the algorithm is done.

    Args:
        options: of the demonstration.
        lag: rollouts are sampled by the policy so many updates before the current one, or by the first.
        changes: of the algorithm's options.
    """
    with tempfile.TemporaryDirectory() as folder:
        verl = replace(algorithm_of(options, Path(folder)), **changes)
        first = Path(folder) / "first"
        first.mkdir()
        write_initial_model(verl, first, seed=options.seed)
        yield from _steps(verl, options, VerlEngine(verl, first), first, lag)


def _steps(verl: VERL, options: Options, engine: VerlEngine, folder: Path, lag: int) -> Iterator[float]:
    from transformers import AutoTokenizer

    load: Any = AutoTokenizer.from_pretrained
    tokenizer, tasks = load(folder), tasks_of(options)
    rewards: list[float] = []
    version = 0
    policies = deque([_policy_in(folder)], maxlen=lag + 1)
    for step in range(1, verl.steps + 1):
        groups: list[Group] = []
        for place, index in enumerate(sample_indices(step, verl.tasks_per_step, len(tasks), options.seed)):
            prompt: list[int] = tokenizer.apply_chat_template(
                prompt_of(tasks[index]), add_generation_prompt=True, tokenize=True, return_dict=False
            )
            chance = np.random.default_rng((options.seed, step, place))
            tokens, logprobs = _sample(policies[0], prompt, verl.rollouts_per_task, chance)
            members = [
                _trajectory(
                    f"s{step}-g{place}-{sample}",
                    (prompt, token, logprob, max(0, version - lag)),
                    score(tasks[index], use_tool(tokenizer.decode([token]).strip()[:1], tasks[index]["question"])),
                )
                for sample, (token, logprob) in enumerate(zip(tokens, logprobs, strict=True))
            ]
            groups.append(Group(f"s{step}-g{place}", tuple(members)))
        rewards.append(fmean(t.reward or 0.0 for group in groups for t in group.trajectories))
        yield rewards[-1]
        last = rewards[-verl.reward_target_steps :]
        if (
            verl.reward_target is not None
            and len(last) == verl.reward_target_steps
            and fmean(last) >= verl.reward_target
        ):
            return
        rows = select_rows(groups, scoring=verl.scoring)
        if rows.has_signal or verl.entropy_coefficient:
            engine.update(build_arrays(rows), policy_version=version, seed=(options.seed, step))
            version += 1
            served = folder / f"v{version}"
            served.mkdir()
            engine.save_weights(served)
            policies.append(_policy_in(served))


def _policy_in(folder: Path) -> Any:
    """A policy as a model server has it."""
    import torch
    from transformers import AutoModelForCausalLM

    load: Any = AutoModelForCausalLM.from_pretrained
    return load(folder, dtype=torch.float32).eval()


def _sample(policy: Any, prompt: list[int], count: int, chance: np.random.Generator) -> tuple[list[int], list[float]]:
    """One token for each of ``count`` rollouts of a prompt, and its log-probability."""
    import torch

    with torch.no_grad():
        logits = policy(input_ids=torch.tensor([prompt]), use_cache=False).logits[0, -1].double()
    distribution = torch.log_softmax(logits, -1).numpy()
    cumulative = np.exp(distribution).cumsum()
    tokens = np.searchsorted(cumulative, chance.random(count) * cumulative[-1], side="right")
    return tokens.tolist(), distribution[tokens].tolist()


def _trajectory(name: str, sampled: tuple[list[int], int, float, int], reward: float) -> Trajectory:
    prompt, token, logprob, version = sampled
    triplet = TripletRecord(
        call_index=0,
        span_id="0" * 16,
        trace_id="0" * 32,
        policy_version=version,
        prompt_token_ids=pack_int32(prompt),
        response_token_ids=pack_int32([token]),
        response_logprobs=pack_float32([logprob]),
        response_mask=b"\x01",
    )
    return Trajectory(
        rollout_id=name,
        attempt_id=name,
        attempt_sequence=1,
        mode=RolloutMode.TRAIN,
        status=AttemptStatus.SUCCEEDED,
        rollout_status=RolloutStatus.SUCCEEDED,
        final=True,
        reward=reward,
        triplets=[triplet],
    )


def main() -> None:
    """Print the figures."""
    run(__doc__, measure, seeds=30, first=0)


if __name__ == "__main__":
    main()
