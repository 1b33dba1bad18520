"""Several processes that hold a model together (gloo), each forked, which make the same calls of an engine."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.forked import Forked

TIMEOUT_S = 900.0
ROOT = Path(__file__).parents[3]


def call_in_ranks(
    count: int, config: str, folder: Path, calls: Sequence[Sequence[Any]], work: Path, *, first: Path | None = None
) -> list[Any]:
    """Make an engine in ``count`` processes, and these calls of :class:`Calls` one after another in each.

    Args:
        config: options, as ``VERL.as_json`` writes them; those of each process are ``processes=count``.
        folder: the engine's.
        calls: name and arguments.
        work: a folder to make.
        first: make an engine of this model before, so that what the first one imports is not measured.

    Returns:
        Of each process its exit status, and the results of the calls that it came to, the making of the engine first.
    """
    work.mkdir()
    programs = [
        Forked(
            ["-m", "tests.trainers.support.ranks", str(rank), str(count), str(work), str(folder), json.dumps([*calls])],
            dict(os.environ) | {"VERL_OPTIONS": config, "FIRST_MODEL": str(first or ""), "PYTHONPATH": str(ROOT)},
            ROOT,
        )
        for rank in range(count)
    ]
    read: list[tuple[str, str]] = [("", "")] * count

    def follow(rank: int) -> None:
        read[rank] = programs[rank].communicate(TIMEOUT_S)

    threads = [threading.Thread(target=follow, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for rank, (out, err) in enumerate(read):
        sys.stderr.write(f"rank {rank}:\n{out}\n{err}\n")
    return [
        (program.returncode, [json.loads(line) for line in (work / f"results-{rank}").read_text("utf-8").splitlines()])
        for rank, program in enumerate(programs)
    ]


class Peak:
    """How far the memory of this process grows at most, in bytes."""

    def __enter__(self) -> Peak:
        import ctypes
        import gc

        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what was freed is not taken again unseen
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
        self._before = _status("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        self.bytes = _status("VmHWM") - self._before


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1]) * 1024


class Calls:
    """What a test has the processes do. Each result is written as JSON."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def update(self, step: int) -> dict[str, float]:
        metrics: dict[str, float] = self._engine.update(batch(step), policy_version=step, seed=(step,))
        return {name: metrics[name] for name in ("grad_norm", "lr", "actor/pg_loss")}

    def save(self, folder: str) -> int:
        """Returns by how much memory grew."""
        with Peak() as peak:
            self._engine.save(Path(folder))
        self._engine.saved_in(Path(folder))
        return peak.bytes

    def save_weights(self, folder: str) -> int:
        """Returns by how much memory grew."""
        with Peak() as peak:
            self._engine.save_weights(Path(folder))
        return peak.bytes

    def gather(self) -> int:
        """The stub that others are measured against: all of the model in each process."""
        from lightstream.trainers.engines.verl import state

        with Peak() as peak:
            kept = {name: state.whole(tensor).clone() for name, tensor in self._engine.module.state_dict().items()}
        del kept
        return peak.bytes


def batch(step: int) -> Any:
    """The rollouts of a step, which follow from its number."""
    from lightstream.trainers.rollouts.batch import build_arrays, select_rows
    from lightstream.trainers.rollouts.groups import Group

    from .trajectories import random_trajectory

    size = 4
    return build_arrays(
        select_rows(
            [
                Group(
                    name,
                    tuple(
                        random_trajectory(
                            f"{name}-{i}", group_id=name, group_size=size, run_id="run", policy_version=step
                        )
                        for i in range(size)
                    ),
                )
                for name in (f"s{step}-g{g}" for g in range(2))
            ]
        )
    )


def main() -> None:
    import torch
    from torch import distributed

    from lightstream.schemas.errors import LightstreamError
    from lightstream.trainers import VERL
    from lightstream.trainers.engines.verl.config import options_of
    from lightstream.trainers.engines.verl.engine import VerlEngine
    from lightstream.trainers.engines.verl.shards import Shard

    rank, count, work, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
    torch.set_num_threads(1)
    options: dict[str, Any] = options_of(os.environ["VERL_OPTIONS"])
    options["processes"] = count
    config = VERL(**options)
    untyped: Any = distributed
    untyped.init_process_group("cpu:gloo", init_method=f"file://{work}/store", rank=rank, world_size=count)
    with (work / f"results-{rank}").open("w") as results:
        try:
            if before := os.environ["FIRST_MODEL"]:
                first = VerlEngine(config, Path(before), Shard(rank, count))
                first.update(batch(0))
                del first
            with Peak() as peak:
                engine = VerlEngine(config, folder, Shard(rank, count))
            print(peak.bytes, file=results, flush=True)
            calls = Calls(engine)
            for name, *arguments in json.loads(sys.argv[5]):
                print(json.dumps(getattr(calls, name)(*arguments)), file=results, flush=True)
        except (OSError, LightstreamError) as error:
            print(json.dumps({"error": str(error)}), file=results, flush=True)
    os._exit(0)  # others may have ended


if __name__ == "__main__":
    main()
