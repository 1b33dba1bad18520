"""The engine of ``engines.verl``, the same in each of several processes: a part of the model in each (FSDP2).

Each process gets the whole batch and computes its part of every mini-batch, so that an update is the same as in one
process but for the order in which numbers are added. Ray starts the processes, shows each its GPU, and tells of one
that died.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lightstream.schemas.distribution import install_hint
from lightstream.schemas.errors import TrainingError

from ...loop.protocols import NothingLearned
from ...rollouts.batch import BatchArrays
from ..verl.config import VerlConfig
from ..verl.images import image_reader
from ..verl.runtime import choose_device

if TYPE_CHECKING:
    from ..verl.engine import VerlEngine

logger = logging.getLogger(__name__)

START_AGAIN = "Nothing of the step is committed: the same command goes on with it."
OBJECT_STORE_BYTES = 1 << 30
"""Of a Ray that is started here: batches pass through it, models do not."""

MAKE_ROOM = (
    "Set VERL(processes=...) or VERL(nodes=...) to what there is, name a larger cluster with RAY_ADDRESS, or wait "
    "longer: VERL(placement_wait_s=...). `ray status` shows who has its processors and GPUs."
)
PLACING_TIMEOUT_S = 60.0
"""Ray places processes within seconds where there is room."""

DEATH_KNOWN_WITHIN_S = 10.0
"""Ray tells within a second or two that a process is gone; those that exchange tensors with it may notice before."""


class RayEngine:
    """One model with its optimiser, in ``config.processes`` processes.

    Joins the Ray cluster that ``RAY_ADDRESS`` names, or the one that this process has joined; else starts Ray on this
    machine, and stops it when it is closed.

    Args:
        config: see :class:`VerlConfig`.
        folder: a checkpoint of this engine or of one in a single process, or a folder with nothing but a model; all
            machines must find it under this path.
        first: as for :class:`VerlEngine`.

    Raises:
        TrainingError: Ray is not installed, the cluster has too few GPUs (or processors), or the model does not load.
    """

    def __init__(self, config: VerlConfig, folder: Path, *, first: Path | None = None) -> None:
        self._ray = _import_ray()
        self._device = choose_device(config.device)
        self.images = image_reader(first or folder)
        self._wait_s = config.placement_wait_s
        self._started_here = _join_ray(self._ray, config.processes)
        self._processes: list[Any] = []
        self._placement: Any = None
        try:
            self._start(replace(config, warm_up=None), folder, first)
        except BaseException:
            self.close()
            raise

    def update(
        self,
        arrays: BatchArrays,
        *,
        policy_version: int | None = None,
        seed: Sequence[int] = (0,),
        policy: str = "",
        step: int | None = None,
        gap_max: float = math.inf,
    ) -> dict[str, float]:
        """As :meth:`VerlEngine.update`.

        Raises:
            TrainingError: a process died, or failed. The engine is closed; nothing was written.
            NothingLearned: as there.
        """
        batch = self._ray.put(arrays)
        options = {"policy_version": policy_version, "seed": seed, "policy": policy, "step": step, "gap_max": gap_max}
        found: dict[str, float] | NothingLearned = self._all(lambda process: process.update.remote(batch, **options))
        if isinstance(found, NothingLearned):
            raise found
        return found

    def kl_to_reference(self, arrays: BatchArrays) -> npt.NDArray[np.float64]:
        """As :meth:`VerlEngine.kl_to_reference`."""
        batch = self._ray.put(arrays)
        kl: npt.NDArray[np.float64] = self._all(lambda process: process.kl_to_reference.remote(batch))
        return kl

    def save_weights(self, folder: Path) -> None:
        """As :meth:`VerlEngine.save_weights`."""
        self._all(lambda process: process.save_weights.remote(folder), writes=True)

    def save(self, folder: Path) -> None:
        """As :meth:`VerlEngine.save`. Another number of processes can go on from it.

        Raises:
            TrainingError: a process died, or failed. The engine is closed, and the folder is not finished.
            OSError: the disk of one is full; the error names its file. As above.
        """
        self._all(lambda process: process.save.remote(folder), writes=True)

    def saved_in(self, folder: Path) -> None:
        """As :meth:`VerlEngine.saved_in`."""
        self._all(lambda process: process.saved_in.remote(folder))

    def close(self) -> None:
        """End the processes, and Ray if it was started here. May be called again."""
        for process in self._processes:
            self._ray.kill(process)
        self._processes = []
        if self._placement is not None and self._ray.is_initialized():
            self._ray.util.remove_placement_group(self._placement)
        self._placement = None
        if self._started_here:
            self._started_here = False
            self._ray.shutdown()

    def _start(self, config: VerlConfig, folder: Path, first: Path | None) -> None:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        part = self._ray.remote(_Process)
        options = {
            "max_restarts": 0,
            "runtime_env": {"env_vars": _environment()},
            f"num_{_resource(self._device).lower()}s": 1,
        }
        for bundle in self._place(config.processes, config.nodes):
            strategy: Any = PlacementGroupSchedulingStrategy(self._placement, placement_group_bundle_index=bundle)
            self._processes.append(part.options(scheduling_strategy=strategy, **options).remote())
        address = self._ray.get(self._processes[0].address.remote())
        starts = [
            process.start.remote(config, folder, first, rank, config.processes, address)
            for rank, process in enumerate(self._processes)
        ]
        self._first_result(starts)

    def _place(self, processes: int, nodes: int) -> list[int]:
        """Reserve a place for each process; returns the bundle of each rank, so that ranks follow the nodes.

        Raises:
            TrainingError: the cluster has no such room, for as long as the options say.
        """
        bundles = nodes if nodes > 1 else processes
        each, kind, wait_s = processes // bundles, _resource(self._device), self._wait_s
        lacking = self._lacking(processes, nodes)
        if lacking and (not wait_s or self._started_here):  # what runs on this machine alone does not grow
            raise TrainingError(f"{lacking}.", next_step=MAKE_ROOM)
        if lacking:
            logger.warning("%s: waiting for up to %g s", lacking, wait_s)
        self._placement = self._ray.util.placement_group(
            [{kind: each}] * bundles,
            strategy="STRICT_SPREAD" if nodes > 1 else "PACK",
        )
        timeout_s = None if wait_s == math.inf else max(wait_s, PLACING_TIMEOUT_S)
        try:
            self._ray.get(self._placement.ready(), timeout=timeout_s)
        except self._ray.exceptions.GetTimeoutError as error:
            found = self._lacking(processes, nodes) or f"Ray finds no room for {processes} training processes"
            raise TrainingError(f"{found}, after {timeout_s:g} s.", next_step=MAKE_ROOM) from error
        node_of: dict[int, str] = self._ray.util.placement_group_table(self._placement)["bundles_to_node_id"]
        return [bundle for bundle in node_order(node_of) for _ in range(each)]

    def _lacking(self, processes: int, nodes: int) -> str:
        """What the cluster has too little of now, in words; empty where it seems to have enough."""
        kind = _resource(self._device)
        if nodes > 1:
            each = processes // nodes
            alive = [node["Resources"].get(kind, 0) for node in self._ray.nodes() if node["Alive"]]
            roomy = sum(has >= each for has in alive)
            if roomy < nodes:
                return (
                    f"{processes} training processes on {nodes} nodes need {nodes} with {each} {kind}s; "
                    f"Ray has {roomy} of these, so that {nodes - roomy} more must join"
                )
        there = int(self._ray.cluster_resources().get(kind, 0))
        free = int(self._ray.available_resources().get(kind, 0))
        if free >= processes:
            return ""
        return (
            f"{processes} training processes need as many {kind}s; Ray has {there}, of which {free} are free: "
            f"{processes - free} are missing"
        )

    def _all(self, call: Callable[[Any], Any], *, writes: bool = False) -> Any:
        """Make a call in each process, and return rank 0's result. Where it ``writes``, an OSError is the disk's."""
        if not self._processes:
            raise TrainingError("the training processes have ended.", next_step=START_AGAIN)
        return self._first_result([call(process) for process in self._processes], writes=writes)

    def _first_result(self, calls: list[Any], *, writes: bool = False) -> Any:
        """Return rank 0's result, once all have one. One that fails ends all, as others wait for it."""
        waiting = list(calls)
        while waiting:
            done, waiting = self._ray.wait(waiting)
            try:
                self._ray.get(done)
            except self._ray.exceptions.RayActorError as error:
                rank = calls.index(done[0])
                self.close()
                raise TrainingError(f"training process {rank} died.", next_step=START_AGAIN) from error
            except self._ray.exceptions.RayTaskError as error:
                rank = calls.index(done[0])
                if isinstance(error.cause, TrainingError) or (writes and isinstance(error.cause, OSError)):
                    self.close()
                    raise error.cause from error
                dead = self._dead_among(waiting)
                self.close()
                if dead is not None:
                    raise TrainingError(f"training process {calls.index(dead)} died.", next_step=START_AGAIN) from error
                raise TrainingError(
                    f"training process {rank} failed: {type(error.cause).__name__}: {error.cause}.",
                    next_step=START_AGAIN,
                ) from error
        return self._ray.get(calls[0])

    def _dead_among(self, waiting: list[Any]) -> Any:
        """The call of a process that died, after which another failed for lack of it; ``None`` where none did."""
        deadline = time.monotonic() + DEATH_KNOWN_WITHIN_S
        while waiting and (left := deadline - time.monotonic()) > 0:
            done, waiting = self._ray.wait(waiting, timeout=left)
            for call in done:
                try:
                    self._ray.get(call)
                except self._ray.exceptions.RayActorError:
                    return call
                except self._ray.exceptions.RayTaskError:
                    continue
        return None


class _Process:
    """One process of the engine, as Ray runs it."""

    _engine: VerlEngine

    def address(self) -> str:
        """A place at which the processes can find each other, on this machine."""
        import ray.util

        untyped: Any = ray.util
        with contextlib.closing(socket.socket()) as unused:
            unused.bind(("", 0))
            return f"{untyped.get_node_ip_address()}:{unused.getsockname()[1]}"

    def start(self, config: VerlConfig, folder: Path, first: Path | None, rank: int, count: int, address: str) -> None:
        """Load the model, together with the others."""
        from ..verl.engine import VerlEngine
        from ..verl.shards import Shard

        logging.getLogger().setLevel(logging.WARNING)
        self._engine = VerlEngine(config, folder, Shard(rank, count, address), first=first)

    def update(self, arrays: BatchArrays, **options: Any) -> dict[str, float] | NothingLearned:
        """:class:`NothingLearned`, which all processes raise alike, is returned."""
        try:
            return self._engine.update(arrays, **options)
        except NothingLearned as outcome:
            return outcome

    def kl_to_reference(self, arrays: BatchArrays) -> npt.NDArray[np.float64]:
        """As :meth:`VerlEngine.kl_to_reference`."""
        return self._engine.kl_to_reference(arrays)

    def save_weights(self, folder: Path) -> None:
        """Rank 0 writes."""
        self._engine.save_weights(folder)

    def save(self, folder: Path) -> None:
        """Each writes its part."""
        self._engine.save(folder)

    def saved_in(self, folder: Path) -> None:
        """As :meth:`VerlEngine.saved_in`."""
        self._engine.saved_in(folder)


def node_order(node_of: Mapping[int, str]) -> list[int]:
    """The bundles of a placement: bundles of one node beside each other, nodes in the order of their first bundle."""
    nodes = list(dict.fromkeys(node_of[bundle] for bundle in sorted(node_of)))
    return sorted(node_of, key=lambda bundle: (nodes.index(node_of[bundle]), bundle))


def _import_ray() -> Any:
    """Ray.

    Raises:
        TrainingError: it is not installed.
    """
    try:
        import ray
        import ray.util  # pyright: ignore[reportUnusedImport]  # `ray.util` is used as an attribute of ray
    except ModuleNotFoundError as error:
        raise TrainingError("Ray is not installed.", next_step=f"Install it with {install_hint('train')}.") from error
    return ray


def _resource(device: str) -> str:
    """What a process takes one of, as Ray names it."""
    return "GPU" if device == "cuda" else "CPU"


def _environment() -> dict[str, str]:
    """Variables that the processes need as they are here."""
    names = ("PYTHONPATH", "HF_HOME", "HF_HUB_OFFLINE", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM")
    return {name: os.environ[name] for name in names if name in os.environ}


def _join_ray(ray: Any, processes: int) -> bool:
    """Join or start Ray; whether it was started here.

    Args:
        ray: the module.
        processes: how many hold the model.
    """
    started = False
    if not ray.is_initialized():
        started = "RAY_ADDRESS" not in os.environ
        local = {"num_cpus": max(processes, os.cpu_count() or 1), "object_store_memory": OBJECT_STORE_BYTES}
        ray.init(
            log_to_driver=False,
            logging_level=logging.WARNING,
            **({"include_dashboard": False, **local} if started else {}),
        )
    return started
