"""verl's own trainer for Ray, fed with rows and advantages that are made already.

Importing this module needs TransferQueue, and verl set up for its device (:func:`.runtime.load_verl`).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import ray
import transfer_queue  # pyright: ignore[reportMissingImports]  # in an environment of its own
from verl.single_controller.ray import ResourcePoolManager
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer
from verl.utils import tensordict_utils
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry

from ..batch import BatchArrays, token_weights
from ..verl_in_process.config import VerlConfig
from ..verl_in_process.correction import correct
from ..verl_in_process.shards import with_idle_row
from ..verl_in_process.tensors import REFERENCE, select_mini_batches, to_tensordict
from .ppo_places import IDLE_TOKENS, Places
from .ppo_settings import TRAINER
from .ppo_worker import LightstreamWorker

__all__ = ["LightstreamTrainer", "Step"]

PARTITION = "train"
"""Name that verl has for the rows of a step."""

ROWS = ("prompts", "responses", "input_ids", "position_ids", "response_mask", "loss_mask")
"""Fields of a row that are known before anything is computed."""

LOSS = ("old_log_probs", "advantages", "weights", "compared")
"""Fields that the loss needs beside those."""


@dataclass(slots=True)
class Step:
    """One step of the trainer: what it is made of, and what it found.

    Attributes:
        arrays: N rows.
        computed: numbers of those that are computed, ascending, at least one.
        compared: (sum R,): tokens whose log-probabilities should be those of the actor.
        seed: numbers that the order of mini-batches, and dropout, follow from.
        metrics: of the step, by our names.
    """

    arrays: BatchArrays
    computed: list[int]
    compared: npt.NDArray[np.bool_]
    seed: tuple[int, ...]
    metrics: dict[str, float]


class _Rows:
    """Stands where verl has its replay buffer: the rows of the step are all that there are."""

    def __init__(self) -> None:
        self.batch: Any = None

    def sample(self, **_: Any) -> tuple[Any, dict[str, float]]:
        """The batch for verl, and no metrics."""
        return self.batch, {}


class _Pools(ResourcePoolManager):  # type: ignore[misc]  # verl has no types
    """One process for each place of a pool, whatever the device; the caller has looked whether there is room."""

    def _check_resource_available(self) -> None:
        return


@register_trainer(TRAINER)
class LightstreamTrainer(PPOTrainer):  # type: ignore[misc]  # verl has no types
    """A ``PPOTrainer`` whose :meth:`step` is called by our loop, which has the data, the ledger and the servers.

    verl's part is what lies between rows and weights: pools of processes over machines, the order of a step, the
    transport of rows (TransferQueue), the actor and the reference in their engines. It runs in the driver, starts no
    servers, and reads no dataset.

    Args:
        configuration: verl's, see :func:`.ppo_settings.new_configuration`.
        options: ours, of which it was made.
        folder: a checkpoint, or a folder with nothing but a model.
        loss: of the actor, for each of its processes.
    """

    _enable_hybrid_replicas = False
    replay_buffer: Any
    role_worker_mapping: dict[Any, Any]
    _step: Step
    _places: Places
    _proximal: npt.NDArray[np.float32]
    _reference: npt.NDArray[np.float32]

    def __init__(self, configuration: Any, options: VerlConfig, folder: str, loss: Any) -> None:
        self._options = options
        self._folder = folder
        self._loss = loss
        self.resource_pool_manager: Any = None
        self._init_dump_executor()
        super().__init__(configuration)

    def train(self, made: Step, position: int | None = None) -> dict[str, float]:
        """One step of the algorithm; the weights stay in the processes.

        Args:
            made: the step.
            position: where the schedule is, from 0; ``None``: where the last step left it.

        Returns:
            Metrics of the loss and of verl's update.
        """
        self._step = made
        self.global_steps += 1
        seed = int(np.random.default_rng(list(made.seed)).integers(2**63))
        self.actor_rollout_wg.start_step(seed, self._compares_in_loss, position)
        self.step({}, {})
        of_loss: dict[str, float] = self.actor_rollout_wg.finish_step()[0]
        if not self._compares_in_loss:
            of_loss = {name: value for name, value in of_loss.items() if not name.startswith("logprob_")}
        self._clear()
        return of_loss | made.metrics

    def reference_logprobs(self, arrays: BatchArrays) -> npt.NDArray[np.float64]:
        """Of the reference, of each response token, float64 (sum R,)."""
        everything = list(range(len(arrays)))
        self._step = Step(arrays, everything, np.zeros(len(arrays.response_mask), bool), (0,), {})
        self._put_rows([[everything]])
        super()._compute_ref_log_prob(self._of_first_pass(), {})
        found = self._read(REFERENCE)
        self._clear()
        return found

    def close(self) -> None:
        """End the processes. May be called at any time."""
        self._shutdown_dump_executor()
        pools = {} if self.resource_pool_manager is None else self.resource_pool_manager.resource_pool_dict
        for pool in pools.values():
            for group in pool.pgs or ():
                ray.util.remove_placement_group(group)

    def _build_replay_buffer(self) -> Any:
        return _Rows()

    def _init_dataloader(self) -> None:
        """There is no dataset: tasks are the loop's."""
        self.total_training_steps = self.config.trainer.total_training_steps

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        worker = ray.remote(LightstreamWorker)
        self.role_worker_mapping = dict.fromkeys(self.role_worker_mapping, worker)
        spec = self.resource_pool_manager.resource_pool_spec
        self.resource_pool_manager = _Pools(resource_pool_spec=spec, mapping=self.mapping, max_colocate_count=1)

    def _load_checkpoint(self) -> None:
        self.global_steps = 0
        self.actor_rollout_wg.set_loss_fn(self._loss)
        self.actor_rollout_wg.load(self._folder)

    def on_sample_end(self) -> None:
        """Nothing sleeps meanwhile: the servers are not verl's."""

    def on_step_end(self) -> None:
        """The loop commits the step, and then has the servers take the weights, once :meth:`train` has returned."""

    def prepare_step(self) -> dict[str, float]:
        made, options = self._step, self._options
        count = min(options.mini_batches_per_step, len(made.arrays))
        computed = set(made.computed)
        self._put_rows(
            [
                [
                    rows
                    for part in select_mini_batches(len(made.arrays), count, (*made.seed, epoch))
                    if (rows := sorted(computed.intersection(part)))
                ]
                for epoch in range(options.epochs_per_step)
            ]
        )
        return {}

    def _balance_batch(
        self, batch: Any, metrics: dict[str, float], logging_prefix: str = "", keep_minibatch: bool = False
    ) -> Any:
        """The places are balanced already, and as many mini-batches as were asked for, however many rows there are."""
        return batch

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, float]) -> Any:
        """Those as sampled, unless they are corrected, or the actor moves before it could be compared with them."""
        made = self._step
        if self._compares_in_loss:
            return batch
        first = self._of_first_pass()
        first.extra_info |= {"calculate_entropy": False, "compute_loss": False}
        self.actor_rollout_wg.compute_log_prob(first)
        computed = np.isin(made.arrays.row_of_token, made.computed)
        proximal = np.where(computed, self._read("log_probs"), made.arrays.response_logprobs).astype(np.float32)
        made.metrics |= _apart(proximal, made.arrays.response_logprobs, made.compared & computed)
        self._proximal = proximal
        return batch

    def _compute_ref_log_prob(self, batch: Any, metrics: dict[str, float]) -> Any:
        if self._options.kl_loss_coefficient:
            super()._compute_ref_log_prob(self._of_first_pass(), {})
            self._reference = self._read(REFERENCE).astype(np.float32)
        return batch

    def _compute_advantage(self, batch: Any, metrics: dict[str, float]) -> Any:
        """Those of the loop, one for a rollout; the correction, and the weights of the loss."""
        made, options = self._step, self._options
        arrays, factors = made.arrays, np.ones(len(made.arrays.response_mask))
        if options.correction is not None:
            corrected = correct(arrays, self._proximal, made.computed, options.correction)
            arrays, factors = corrected.arrays, corrected.factors
            made.metrics |= corrected.metrics
        count = min(options.mini_batches_per_step, len(arrays))
        weights = token_weights(arrays, options.normalisation, constant_tokens=options.response_tokens_max or 1)
        # Gradients are averaged over the processes, each of which has its part of the sum.
        weights *= count * factors * options.processes
        further = {REFERENCE: self._reference} if options.kl_loss_coefficient else {}
        names = (*LOSS, "response_mask", "loss_mask", *further)
        self._put(arrays, names, weights, made.compared, further)
        return batch

    def _update_actor(self, batch: Any, metrics: dict[str, float]) -> Any:
        batch.extra_info |= {
            "calculate_entropy": self._options.entropy_coefficient != 0.0,
            "num_mini_batch": self._places.parts,
            "epochs": 1,
            "seed": 0,
            "dataloader_kwargs": {"shuffle": False},
        }
        output: Any = self.actor_rollout_wg.update_actor(batch)
        found: dict[str, list[float]] = output["metrics"]
        self._step.metrics |= {name: float(np.mean(found[name])) for name in ("loss", "grad_norm", "lr")}
        return batch

    @property
    def _compares_in_loss(self) -> bool:
        """Whether the loss sees the actor as it was when it sampled: there is no pass before the update then."""
        options = self._options
        return options.correction is None and options.mini_batches_per_step * options.epochs_per_step == 1

    def _put_rows(self, passes: Sequence[Sequence[list[int]]]) -> None:
        arrays, options = self._step.arrays, self._options
        self._places = places = Places.of(passes, arrays.lengths.tolist(), options.processes)
        lengths = [*arrays.lengths.tolist(), IDLE_TOKENS]
        step = uuid.uuid4().hex
        longest = max(lengths[row] for row in places.rows)
        self.replay_buffer.batch = transfer_queue.KVBatchMeta(
            partition_id=PARTITION,
            keys=[f"{step}_{place}_0" for place in range(len(places.rows))],
            tags=[{"seq_len": lengths[row], "is_padding": row == len(arrays)} for row in places.rows],
            extra_info={
                "temperature": options.temperature,
                "global_batch_size": len(places.rows),
                "max_token_len_per_gpu": max(options.tokens_per_micro_batch, longest),  # verl refuses longer rows
            },
        )
        nothing = np.zeros(len(arrays.response_mask))
        self._put(arrays, ROWS, nothing, nothing.astype(bool), {})

    def _put(
        self,
        arrays: BatchArrays,
        names: Sequence[str],
        weights: npt.NDArray[np.float64],
        compared: npt.NDArray[np.bool_],
        further: dict[str, npt.NDArray[np.float32]],
    ) -> None:
        """Write some fields of all places."""
        table = to_tensordict(
            with_idle_row(arrays),
            np.append(weights, 0.0),
            np.append(compared, False),
            {name: np.append(values, np.float32(0)) for name, values in further.items()},
        )
        of_places = tensordict_utils.index_select_tensor_dict(table.select(*names), self._places.rows)
        batch = self.replay_buffer.batch
        transfer_queue.kv_batch_put(keys=batch.keys, partition_id=PARTITION, fields=of_places, tags=batch.tags)

    def _of_first_pass(self) -> Any:
        """The places in which each row is once."""
        batch = self.replay_buffer.batch
        keys = [key for key, first in zip(batch.keys, self._places.first, strict=True) if first]
        return batch.select_keys(keys)

    def _read(self, name: str) -> npt.NDArray[np.float64]:
        """A field of the first pass, of each response token, float64 (sum R,); 0 in rows that are not computed."""
        from verl.workers.utils.padding import response_from_nested

        arrays = self._step.arrays
        batch = self._of_first_pass()
        data = transfer_queue.kv_batch_get(
            keys=batch.keys, partition_id=PARTITION, select_fields=[name, "response_mask"]
        )
        values = data[name]
        if name == "log_probs":  # of whole sequences, as the engine gives them
            values = response_from_nested(values, data["response_mask"])
        rows = [row for row, first in zip(self._places.rows, self._places.first, strict=True) if first]
        starts = np.cumsum(arrays.response_lengths) - arrays.response_lengths
        found = np.zeros(len(arrays.response_mask))
        for row, of_row in zip(rows, values.unbind(), strict=True):
            if row < len(arrays):
                found[starts[row] : starts[row] + arrays.response_lengths[row]] = of_row.float().numpy()
        return found

    def _clear(self) -> None:
        batch = self.replay_buffer.batch
        transfer_queue.kv_clear(keys=batch.keys, partition_id=PARTITION)
        self.replay_buffer.batch = None


def _apart(
    actor: npt.NDArray[np.float32], sampler: npt.NDArray[np.float32], compared: npt.NDArray[np.bool_]
) -> dict[str, float]:
    """How far the actor's log-probabilities are from those as sampled, as :meth:`WeightedPolicyLoss.metrics` says."""
    difference = (actor - sampler)[compared].astype(np.float64)
    if not len(difference):
        return dict.fromkeys(("logprob_diff_max", "logprob_diff_mean", "logprob_k3"), float("nan"))
    return {
        "logprob_diff_max": float(np.abs(difference).max()),
        "logprob_diff_mean": float(np.abs(difference).mean()),
        "logprob_k3": float((np.exp(difference) - 1 - difference).mean()),
    }


def _no_servers() -> Any:
    """The class of servers that verl asks for by name, and makes none of."""
    return RolloutReplica


RolloutReplicaRegistry.register(TRAINER, _no_servers)
