"""Figures of training on this GPU, without Kafka and without a network, into ``docs/proofs/<date>.json``.

``make gpu-proof``, where ``make gpu-bundle`` was unpacked. Six parts:

- ``recorded``: the steps of a recorded run, in float32, beside those that a CPU made of the same recording;
- ``sampler``: an actor in bfloat16 beside the policy server in bfloat16, on what that sampled: the estimator k3 of the
  KL; and the server's tokens a second with 64 sequences at once. ``sampler_peaked``: the same of weights that spread
  more, whose probabilities differ more between tokens, and whose rounding errors grow from layer to layer;
- ``packing``: updates of packed beside padded rows whose lengths spread, alternately;
- ``learning``: GRPO on answers that are to be digits, from weights on disk to the sampler and back;
- ``lora``: the same with an adapter.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import torch

from lightstream.trainers import VERL
from lightstream.trainers.engines.verl.engine import VerlEngine
from lightstream.trainers.rollouts.batch import BatchArrays, build_arrays, select_rows
from lightstream.trainers.rollouts.groups import Group
from lightstream.trainers.servers.chat_api.generation import Generation
from lightstream.trainers.servers.cpu.checkpoint import load_model, load_tokenizer, overwrite_weights

from .rollouts import Device, Sampler, make_model, read_expected, timed, trajectory_of

CONCURRENT = 64
GROUP = 8


def recorded(bundle: Path, work: Path, device: Device) -> dict[str, float]:
    """The largest difference of a step's figures to the CPU's, relative to these."""
    expected: list[dict[str, float]] = json.loads((bundle / "expected.json").read_text("utf-8"))
    found = read_expected(bundle, work / "recorded", device=device)
    assert len(found) == len(expected)
    return {
        f"{name}_relative_difference_max": max(
            abs(a[name] - b[name]) / abs(b[name]) for a, b in zip(found, expected, strict=True)
        )
        for name in expected[0]
    }


def sampler(model: Path, tokens: int, device: Device) -> dict[str, float]:
    """k3 between actor and sampler, packed and padded, and tokens a second of the policy server's engine."""
    made, seconds = sampled(model, tokens, device)
    arrays = arrays_of(made)
    figures = {"policy_server_tokens_per_s": CONCURRENT * tokens / seconds}
    for name, packs in (("packed", True), ("padded", False)):
        actor = actor_of(model, device, packs=packs)
        metrics = actor.update(arrays, policy_version=0)
        figures |= {f"{name}_{key}": metrics[key] for key in ("logprob_k3", "logprob_diff_mean", "logprob_diff_max")}
        figures[f"{name}_surprise"] = metrics["actor/entropy"]
        del actor
    return figures


def sampled(model: Path, tokens: int, device: Device) -> tuple[list[Generation], float]:
    """Answers of so many tokens, all at once, and the seconds that they took."""
    served = load_model(model, torch.device(device), torch.bfloat16)
    chance = np.random.default_rng(1)
    prompts = [chance.integers(3, 259, chance.integers(16, 256)).tolist() for _ in range(CONCURRENT)]
    engine = Sampler(CONCURRENT)
    engine.sample(served, prompts, 8)  # the first calls choose kernels
    made: list[Generation] = []
    seconds = timed(lambda: made.extend(engine.sample(served, prompts, tokens)))
    engine.close()
    return made, seconds


def packing(model: Path, device: Device, *, rows: int, pairs: int) -> dict[str, float]:
    """Tokens a second of an update of packed rows by those of padded rows: median and range of pairs."""
    chance = np.random.default_rng(2)
    lengths = np.exp(chance.normal(6.0, 1.0, rows)).clip(16, 8192).astype(int)
    made = [Made(chance.integers(3, 259, 16).tolist(), chance.integers(3, 259, n).tolist()) for n in lengths]
    arrays = arrays_of(made)
    engines = {name: actor_of(model, device, packs=name == "packed") for name in ("padded", "packed")}
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    metrics: dict[str, dict[str, float]] = {}
    for number in range(pairs + 1):
        for name, engine in engines.items():

            def update(name: str = name, engine: VerlEngine = engine, number: int = number) -> None:
                metrics[name] = engine.update(arrays, seed=(number,))

            spent = timed(update)
            if number:  # the first is not counted
                seconds[name].append(spent)
            elif device == "cuda":
                torch.cuda.reset_peak_memory_stats()
    ratios = [padded / packed for padded, packed in zip(seconds["padded"], seconds["packed"], strict=True)]
    tokens = metrics["packed"]["tokens/computed"]
    return {
        "packed_over_padded_median": median(ratios),
        "packed_over_padded_least": min(ratios),
        "packed_over_padded_most": max(ratios),
        "packed_tokens_per_s": tokens / median(seconds["packed"]),
        "padded_tokens_per_s": tokens / median(seconds["padded"]),
        "padded_tokens_per_token": metrics["padded"]["tokens/padded"] / tokens,
        "grad_norm_relative_difference": abs(metrics["packed"]["grad_norm"] / metrics["padded"]["grad_norm"] - 1),
    }


def learning(model: Path, work: Path, device: Device, *, steps: int, **options: Any) -> dict[str, Any]:
    """Mean rewards of GRPO: eight tasks, eight answers of four tokens each; the reward is the share of digits."""
    tokenizer = load_tokenizer(model)
    digits = {tokenizer.encode(str(digit))[0] for digit in range(10)}
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": f"A number for {name}, please."}],
            add_generation_prompt=True,
            return_dict=False,
        )
        for name in ("Ada", "Bob", "Cem", "Dee", "Eve", "Fay", "Gus", "Hal")
        for _ in range(GROUP)
    ]
    actor = VerlEngine(VERL(model=model, steps=steps, device=device, dtype="bfloat16", **options), model)
    served = load_model(model, torch.device(device), torch.bfloat16)
    engine = Sampler(CONCURRENT)
    rewards: list[float] = []
    k3: list[float] = []
    for step in range(1, steps + 1):
        made = engine.sample(served, prompts, 4, seed=step)
        scores = [fmean(token in digits for token in one.token_ids) for one in made]
        rewards.append(fmean(scores))
        metrics = actor.update(arrays_of(made, scores, version=step - 1), policy_version=step - 1, seed=(step,))
        k3.append(metrics["logprob_k3"])
        folder = work / f"{'-'.join(options)}-{step}"
        folder.mkdir()
        actor.save_weights(folder)
        overwrite_weights(served, folder)
    engine.close()
    return {
        "rewards": [round(reward, 3) for reward in rewards],
        "first_3": fmean(rewards[:3]),
        "last_5": fmean(rewards[-5:]),
        "logprob_k3_max": max(k3),
    }


class Made:
    """An answer that nobody sampled, as :class:`Generation` has it."""

    def __init__(self, prompt_ids: list[int], token_ids: list[int]) -> None:
        self.prompt_ids, self.token_ids = prompt_ids, token_ids
        self.logprobs = [-5.0] * len(token_ids)


def arrays_of(
    made: Sequence[Generation | Made], rewards: Sequence[float] | None = None, *, version: int = 0
) -> BatchArrays:
    """A batch of groups of eight; without rewards, every second answer has 1."""
    groups: list[Group] = []
    for first in range(0, len(made), GROUP):
        name = f"g{first}"
        rollouts = [
            trajectory_of(
                f"{name}-{number}",
                name,
                GROUP,
                float(number % 2) if rewards is None else rewards[first + number],
                one.prompt_ids,
                one.token_ids,
                one.logprobs,
                version=version,
            )
            for number, one in enumerate(made[first : first + GROUP])
        ]
        groups.append(Group(name, tuple(rollouts)))
    return build_arrays(select_rows(groups))


def actor_of(model: Path, device: Device, *, packs: bool) -> VerlEngine:
    """An actor in bfloat16."""
    return VerlEngine(
        VERL(model=model, steps=1, device=device, dtype="bfloat16", gradient_checkpointing=True), model, packs=packs
    )


def machine(bundle: Path) -> dict[str, str]:
    """The device, the versions and the commit."""
    commit = bundle / "commit.txt"
    return {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "cuda": str(torch.version.cuda),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "transformers", "verl", "tensordict", "peft")},
        "commit": commit.read_text("utf-8").strip() if commit.is_file() else "unknown",
    }


def main() -> int:
    """Print each part's figures as they come, and write them all; exit status 0 when every part ran."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, default=Path(".gpu-bundle"), help="what make gpu-bundle wrote")
    parser.add_argument("--out", type=Path, default=Path("docs/proofs"), help="folder of the figures")
    parser.add_argument("--device", default="cuda", help="cpu tries the program itself, on small models")
    arguments = parser.parse_args()
    small, device = arguments.device == "cpu", arguments.device
    if not small and not torch.cuda.is_available():
        print("There is no GPU here; --device cpu tries the program itself.", file=sys.stderr)
        return 1
    found: dict[str, Any] = {"machine": machine(arguments.bundle)}
    print(json.dumps(found["machine"], indent=1), flush=True)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        sizes = {"num_hidden_layers": 2, "vocab_size": 264, "hidden_size": 64, "intermediate_size": 64}
        sizes |= {"num_attention_heads": 2, "num_key_value_heads": 1}
        large = make_model(work / "large", **(sizes if small else {}))
        peaked = make_model(work / "peaked", initializer_range=0.05, **(sizes if small else {}))
        tiny = make_model(work / "tiny", initializer_range=0.2, **sizes)
        steps = 4 if small else 60
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "recorded": lambda: recorded(arguments.bundle, work, device),
            "learning": lambda: learning(tiny, work, device, steps=steps, learning_rate=1e-2),
            "lora": lambda: learning(tiny, work, device, steps=steps, learning_rate=1e-2, lora_rank=8),
            "sampler": lambda: sampler(large, 8 if small else 256, device),
            "sampler_peaked": lambda: sampler(peaked, 8 if small else 256, device),
            "packing": lambda: packing(large, device, rows=16 if small else 128, pairs=1 if small else 5),
        }
        failed: list[str] = []
        for part, measure in parts.items():
            began_s = time.perf_counter()
            try:
                found[part] = measure() | {"seconds": time.perf_counter() - began_s}
            except Exception as error:  # noqa: BLE001  # a part that fails is a figure too, and the next ones still run
                traceback.print_exc()
                found[part] = {"failed": f"{type(error).__name__}: {error}"}
                failed.append(part)
            print(part, json.dumps(found[part], indent=1), flush=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / f"{datetime.now(UTC):%Y-%m-%d}.json"
    file.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    print(f"Written: {file}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
