"""Figures of vLLM beside the policy server on this GPU, without Kafka and without a network: ``make gpu-proof-vllm``.

Added to ``docs/proofs/<date>.json`` as ``vllm``. One model of Qwen2.5-0.5B's architecture with random weights:

- ``start``: seconds until vLLM, started as training starts it, has made a token;
- ``tokens``: tokens a second of 64 answers at once, alternately vLLM's (over HTTP) and the policy server's engine's;
- ``actor``: k3 between an actor in bfloat16 and vLLM, on what that sampled;
- ``swap``: seconds to other weights, alternately by path and by vLLM's own transfer through the GPU's memory (IPC).

vLLM 0.24 knows no ``/update_weight_version``: the swap sends the other calls of ``servers.vllm`` by itself.
"""

from __future__ import annotations

import argparse
import base64
import json
import pickle
import sys
import tarfile
import tempfile
import time
import traceback
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.multiprocessing.reductions import reduce_tensor

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError
from lightstream.trainers.servers.cpu.checkpoint import load_model
from lightstream.trainers.servers.vllm import VllmOptions, VllmServer
from lightstream.trainers.servers.vllm.client import SERVED_NAME, VllmClient

from .proof import CONCURRENT, Made, actor_of, arrays_of, machine
from .rollouts import Sampler, make_model, timed
from .vllm_bundle import FOLDER

PAIRS = 5

ARGUMENTS = (
    *("--dtype", "bfloat16", "--max-model-len", "1024", "--max-num-seqs", str(CONCURRENT)),
    *("--gpu-memory-utilization", "0.4", "--weight-transfer-config", '{"backend": "ipc"}'),
)
GRAPHS = ("--compilation-config", '{"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}')
"""Nothing is compiled by torch, which takes longer than all that is measured here."""
EAGER = ("--enforce-eager",)


class Answer(Made):
    """An answer of vLLM's, as :class:`Generation` has it."""

    def __init__(self, prompt_ids: list[int], choice: dict[str, Any]) -> None:
        super().__init__(prompt_ids, choice["token_ids"])
        self.logprobs = choice["logprobs"]["token_logprobs"]


class Vllm:
    """A vLLM started as training starts it.

    Args:
        site: vLLM's packages.
        bundle: of ``make gpu-bundle``: vLLM's transfer of weights imports its ray.
    """

    def __init__(self, site: Path, bundle: Path, work: Path, arguments: tuple[str, ...]) -> None:
        self.seconds = 0.0
        environment = {
            "PYTHONPATH": f"{site.resolve()}:{(bundle / 'site').resolve()}",
            "VLLM_USE_FLASHINFER_SAMPLER": "0",
            "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",  # handles of the GPU's memory are pickled
        }
        options = VllmOptions(arguments=arguments, environment=environment, start_timeout_s=150.0)
        self.server = VllmServer(Settings.model_validate({"data_dir": work}), options)

    def start(self, model: Path) -> None:
        """Returns once it has made a token and said the log-probabilities of a text."""
        self.seconds = timed(lambda: self.server.load("policy@0", 0, str(model)))

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Its answer."""
        request = urllib.request.Request(  # noqa: S310  # our own child's address
            f"{self.server.url}{path}", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310  # as above
            content = answer.read()
        return json.loads(content) if content else None

    def sample(self, prompts: list[list[int]], tokens: int) -> list[Answer]:
        """One answer for each prompt, all at once, of exactly so many tokens, at temperature 1."""
        asked = {"model": SERVED_NAME, "prompt": prompts, "max_tokens": tokens, "temperature": 1.0, "ignore_eos": True}
        answer = self.post("/v1/completions", asked | {"logprobs": 0, "return_token_ids": True})
        choices = sorted(answer["choices"], key=lambda choice: choice["index"])
        assert all(len(choice["token_ids"]) == tokens for choice in choices)
        return [Answer(prompt, choice) for prompt, choice in zip(prompts, choices, strict=True)]

    def probe(self) -> tuple[float, ...]:
        """Log-probabilities of a fixed text."""
        return VllmClient(self.server.url, 60.0).probe()

    def swap_by_path(self, folder: Path) -> None:
        """As ``servers.vllm`` does."""
        self.post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}})
        self.post("/reset_prefix_cache", {})

    def swap_by_ipc(self, model: Any) -> None:
        """From the memory of the GPU, where this process has them."""
        weights = dict(model.named_parameters())
        share: Any = reduce_tensor  # torch has no types here
        gpu = str(torch.cuda.get_device_properties(0).uuid)
        handles = [{gpu: share(weight.detach())[1]} for weight in weights.values()]
        info = {
            "names": list(weights),
            "dtype_names": [str(weight.dtype).removeprefix("torch.") for weight in weights.values()],
            "shapes": [list(weight.shape) for weight in weights.values()],
            "ipc_handles_pickled": base64.b64encode(pickle.dumps(handles)).decode(),
        }
        self.post("/start_weight_update", {"is_checkpoint_format": True})
        self.post("/update_weights", {"update_info": info})
        self.post("/finish_weight_update", {})
        self.post("/reset_prefix_cache", {})


def start(site: Path, bundle: Path, work: Path, model: Path) -> tuple[Vllm, dict[str, Any]]:
    """With CUDA graphs, else without.

    Raises:
        LightstreamError: neither starts.
    """
    failed: dict[str, str] = {}
    for mode, more in (("graphs", GRAPHS), ("eager", EAGER)):
        vllm = Vllm(site, bundle, work / mode, (*ARGUMENTS, *more))
        try:
            vllm.start(model)
        except LightstreamError as error:
            vllm.server.stop()
            failed[f"{mode}_failed"] = str(error)
            print(mode, error, vllm.server.log_file.read_text("utf-8", "replace")[-5000:], sep="\n", flush=True)
        else:
            return vllm, {"mode": mode, "start_s": vllm.seconds, **failed}
    raise LightstreamError(f"vLLM does not start: {failed}", next_step="Its logs are above.")


def tokens(vllm: Vllm, model: Path, count: int) -> dict[str, Any]:
    """Seconds of each pair, tokens a second, and the ratio: median and range of pairs."""
    served = load_model(model, torch.device("cuda"), torch.bfloat16)
    engine = Sampler(CONCURRENT)
    actions: dict[str, Callable[[list[list[int]], int], object]] = {
        "vllm": vllm.sample,
        "policy_server": lambda prompts, length: engine.sample(served, prompts, length),
    }
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for number in range(PAIRS + 1):
        prompts = prompts_of(number)
        for name, sample in actions.items():
            length = count if number else 8  # the first calls choose kernels
            spent = timed(partial(sample, prompts, length))
            if number:
                seconds[name].append(spent)
    engine.close()
    ratios = [slow / fast for fast, slow in zip(seconds["vllm"], seconds["policy_server"], strict=True)]
    return {
        **{f"{name}_s": spent for name, spent in seconds.items()},
        **{f"{name}_tokens_per_s": CONCURRENT * count / median(spent) for name, spent in seconds.items()},
        **spread("vllm_over_policy_server", ratios),
    }


def actor(vllm: Vllm, model: Path, count: int) -> dict[str, float]:
    """k3 of an actor beside vLLM."""
    made = vllm.sample(prompts_of(1), count)
    metrics = actor_of(model, "cuda", packs=True).update(arrays_of(made), policy_version=0)
    return {name: metrics[name] for name in ("logprob_k3", "logprob_diff_mean", "logprob_diff_max")}


def swap(vllm: Vllm, folders: list[Path]) -> dict[str, float]:
    """Seconds by path and by IPC, to the second model and back to the first in turn."""
    models = [load_model(folder, torch.device("cuda"), torch.bfloat16) for folder in folders]
    seconds: dict[str, list[float]] = {"path": [], "ipc": []}
    probes: dict[int, tuple[float, ...]] = {0: vllm.probe()}
    worst = 0.0
    for number in range(PAIRS + 1):
        for name, target in (("path", 1), ("ipc", 0)):
            swap_it = partial(vllm.swap_by_path, folders[1]) if name == "path" else partial(vllm.swap_by_ipc, models[0])
            spent = timed(swap_it)
            probe = vllm.probe()
            before = probes.setdefault(target, probe)
            worst = max(worst, *(abs(a - b) for a, b in zip(probe, before, strict=True)))
            if number:
                seconds[name].append(spent)
    ratios = [ipc / path for path, ipc in zip(seconds["path"], seconds["ipc"], strict=True)]
    changed = max(abs(a - b) for a, b in zip(probes[0], probes[1], strict=True))
    figures = {f"{name}_s": median(spent) for name, spent in seconds.items()}
    return figures | spread("ipc_over_path", ratios) | {"probe_difference_max": worst, "probe_change": changed}


def spread(name: str, ratios: list[float]) -> dict[str, float]:
    """Median and range."""
    return {f"{name}_median": median(ratios), f"{name}_least": min(ratios), f"{name}_most": max(ratios)}


def prompts_of(seed: int) -> list[list[int]]:
    """Prompts of 16 to 255 tokens."""
    chance = np.random.default_rng(seed)
    return [chance.integers(3, 259, chance.integers(16, 256)).tolist() for _ in range(CONCURRENT)]


def unpack(folder: Path) -> Path:
    """The packages of the archive whose parts are in a folder."""
    site = folder / "site"
    if not site.is_dir():
        whole = folder / "whole"
        with whole.open("wb") as file:
            for part in sorted(folder.glob("part-*")):
                file.write(part.read_bytes())
        with tarfile.open(whole, mode="r:xz") as archive:
            archive.extractall(folder, filter="tar")
        whole.unlink()
    return site


def main() -> int:
    """Print each part's figures as they come, and add them; exit status 0 when every part ran."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, default=Path(".gpu-bundle"), help="what make gpu-bundle wrote")
    parser.add_argument("--vllm", type=Path, default=FOLDER, help="what make gpu-bundle-vllm wrote")
    parser.add_argument("--out", type=Path, default=Path("docs/proofs"), help="folder of the figures")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("There is no GPU here.", file=sys.stderr)
        return 1
    began_s = time.perf_counter()
    site = unpack(arguments.vllm)
    print(f"unpacked after {time.perf_counter() - began_s:.1f} s", flush=True)
    found: dict[str, Any] = {"machine": machine(arguments.bundle) | {"vllm": "0.24.0"}}
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        folders = [bfloat16(make_model(work / f"model-{seed}", seed=seed)) for seed in (0, 1)]
        print(f"models made after {time.perf_counter() - began_s:.1f} s", flush=True)
        vllm, found["start"] = start(site, arguments.bundle, work, folders[0])
        print("start", found["start"], flush=True)
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "actor": lambda: actor(vllm, folders[0], 256),
            "swap": lambda: swap(vllm, folders),
            "tokens": lambda: tokens(vllm, folders[0], 256),
        }
        for part, measure in parts.items():
            try:
                found[part] = measure()
            except Exception as error:  # noqa: BLE001  # a part that fails is a figure too, and the next ones still run
                traceback.print_exc()
                found[part] = {"failed": f"{type(error).__name__}: {error}"}
                failed.append(part)
            print(part, json.dumps(found[part], indent=1), f"{time.perf_counter() - began_s:.1f} s", flush=True)
        vllm.server.stop()
        log = vllm.server.log_file.read_text("utf-8", "replace")
        print(log[:1500], "...", log[-3000:] if failed else log[-500:], sep="\n")
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / f"{datetime.now(UTC):%Y-%m-%d}.json"
    before: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    file.write_text(json.dumps(before | {"vllm": found}, indent=1) + "\n", "utf-8")
    print(f"Written: {file}")
    return 1 if failed else 0


def bfloat16(folder: Path) -> Path:
    """The folder, its weights in the type in which training writes them."""
    model: Any = load_model(folder, torch.device("cuda"), torch.bfloat16)
    model.save_pretrained(folder)
    return folder


if __name__ == "__main__":
    sys.exit(main())
