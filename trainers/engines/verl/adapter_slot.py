"""Several policies that share a model: the adapter of the one that learns now is in the engine.

Adapter, optimiser and schedule of each policy are put into the engine for its updates, and taken out for the next
one's. So a policy learns as if it were alone, and the memory is that of one, and of an adapter for each.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lightstream.schemas.errors import TrainingError

from ...rollouts.batch import AgentPolicy, trained
from ...run.checkpoint import link_or_copy
from ...run.checkpoint.adapter import ADAPTER_WEIGHTS, AdapterShape, read_adapter, read_shape, write_adapter
from . import state
from .config import VerlConfig
from .model import VerlModel

_IN_ENGINE = ".default.weight"
"""End of an adapter's parameter in verl's model; in a file, the adapter has no name."""


@dataclass(slots=True)
class _PolicyState:
    """All that is one policy's own. Tensors have the shape that the engine's adapter has."""

    weights: dict[str, Any]
    optimizer: dict[Any, dict[str, Any]]
    groups: list[dict[str, Any]]
    schedule: dict[str, Any]


class AdapterSlot:
    """The place in an engine's actor that holds one policy's adapter at a time, and the state of the others meanwhile.

    Where ranks differ, the engine's adapter has the largest; what a smaller one lacks is zero and stays so.

    Args:
        config: its ``policies`` say which there are.
        first: the run's first version: the model, and each policy's first adapter.

    Attributes:
        config: the options of the engine's models: one adapter, of the largest rank.
    """

    def __init__(self, config: VerlConfig, first: Path) -> None:
        self._policies = trained(config.policies)
        self._shapes = {name: read_shape(first / name) for name in self._policies}
        self._rank = max(shape.rank for shape in self._shapes.values())
        self.config = replace(config, policies={}, lora_rank=self._rank)
        self._first = first
        self._states: dict[str, _PolicyState] = {}
        self._in_place = ""

    def fill(self, actor: VerlModel, folder: Path) -> None:
        """Read each policy's state.

        Args:
            actor: the engine's, whose adapter is a new one.
            folder: a checkpoint, or the first version of a run.
        """
        self._engine = actor.engine
        fresh = self._take_out()
        for name, policy in self._policies.items():
            self._put_in(fresh, self._shapes[name])
            self._states[name] = self._restored(name, policy, folder)

    def use(self, policy: str) -> None:
        """Put a policy into the actor.

        Raises:
            KeyError: no policy of that name is trained.
        """
        if policy != self._in_place:
            wanted = self._states[policy]
            self._put_back()
            self._put_in(wanted, self._shapes[policy])
            self._in_place = policy

    def save_weights(self, folder: Path) -> None:
        """Write each policy's adapter into a folder of its name, in the type of the forward pass."""
        import torch

        self._put_back()
        dtype = getattr(torch, self.config.dtype)
        for name, held in self._states.items():
            shape = self._shapes[name]
            tensors = {
                key.replace(_IN_ENGINE, ".weight"): _cut(key, state.whole(tensor), shape.rank).cpu().to(dtype)
                for key, tensor in held.weights.items()
            }
            contiguous = {key: tensor.contiguous() for key, tensor in tensors.items()}
            write_adapter(folder / name, contiguous, replace(shape, base=str(self._first)))

    def save(self, folder: Path) -> None:
        """Write adapter, optimiser and random state of each policy into a folder of its name."""
        for name in self._states:
            self.use(name)
            (folder / name).mkdir()
            state.save(folder / name, self._engine, static_files_from=None)

    def _put_back(self) -> None:
        if self._in_place:
            self._states[self._in_place] = self._take_out()

    def _restored(self, name: str, policy: AgentPolicy, folder: Path) -> _PolicyState:
        """The state of a checkpoint's policy, or the one that it begins with."""
        if state.load(folder / name, self._engine):
            return self._take_out()
        parameters = self._parameters()
        tensors = {
            key.replace(".weight", _IN_ENGINE): _padded(key, tensor, self._rank)
            for key, tensor in read_adapter(folder / name).items()
        }
        begun = self._take_out()
        begun.weights = {key: state.placed_like(parameters[key], tensor.float()) for key, tensor in tensors.items()}
        if policy.learning_rate is not None:
            _set_rate(begun, policy.learning_rate, self.config.learning_rate)
        return begun

    def _take_out(self) -> _PolicyState:
        """The engine's state. The optimiser's tensors are the engine's own, of which another policy gets none."""
        engine = self._engine
        schedule = engine.lr_scheduler.state_dict()
        return _PolicyState(
            weights={name: parameter.detach().clone() for name, parameter in self._parameters().items()},
            optimizer=dict(engine.optimizer.state),
            groups=[{k: v for k, v in group.items() if k != "params"} for group in engine.optimizer.param_groups],
            schedule={k: copy.deepcopy(v) for k, v in schedule.items() if k != "lr_lambdas"},
        )

    def _put_in(self, held: _PolicyState, shape: AdapterShape) -> None:
        import torch

        engine, parameters = self._engine, self._parameters()
        with torch.no_grad():
            for name, tensor in held.weights.items():
                parameters[name].copy_(tensor)
        engine.optimizer.state.clear()
        engine.optimizer.state.update(held.optimizer)
        for group, values in zip(engine.optimizer.param_groups, held.groups, strict=True):
            group.update(values)
        engine.lr_scheduler.load_state_dict(copy.deepcopy(held.schedule) | {"lr_lambdas": [None] * len(held.groups)})
        for module in engine.module.modules():
            if hasattr(module, "lora_A"):
                module.scaling.update(dict.fromkeys(module.scaling, shape.scaling))

    def _parameters(self) -> dict[str, Any]:
        """The adapter in place, as the optimiser knows it. After a pass without gradients, FSDP2 has others there."""
        module = self._engine.module
        for part in module.modules():
            if hasattr(part, "reshard"):
                part.reshard()
        return {name: p for name, p in module.named_parameters() if state.ADAPTER in name}


def write_first_adapters(config: VerlConfig, folder: Path, model: Any) -> None:
    """Write each policy's first adapter into a folder of its name.

    Args:
        folder: of the run's first version.
        model: as transformers loads it; it is unchanged.

    Raises:
        TrainingError: an adapter that a policy is to begin with does not fit the model.
        OSError: the disk is full.
    """
    for name, policy in config.policies.items():
        given = None if policy.adapter is None else Path(policy.adapter).expanduser()
        shape = AdapterShape(policy.lora_rank, policy.lora_alpha, "..") if given is None else read_shape(given)
        tensors = _new_adapter(config, model, shape.rank)
        if given is None:
            write_adapter(folder / name, tensors, shape)
            continue
        found = read_adapter(given)
        _check_fits(name, given, {key: tuple(t.shape) for key, t in found.items()}, tensors)
        write_adapter(folder / name, found, replace(shape, base=".."))
        (folder / name / ADAPTER_WEIGHTS).unlink()
        link_or_copy(given / ADAPTER_WEIGHTS, folder / name / ADAPTER_WEIGHTS)


def _new_adapter(config: VerlConfig, model: Any, rank: int) -> dict[str, Any]:
    """An adapter that changes nothing yet: the values that an engine gives one."""
    import torch
    from peft import LoraConfig, TaskType, get_peft_model

    targets: Any = config.lora_target_modules
    adapted: Any = get_peft_model(
        model,
        LoraConfig(
            task_type=TaskType.CAUSAL_LM,
            r=rank,
            target_modules=targets if isinstance(targets, str) else list(targets),
            bias="none",
        ),
    )
    shapes = {n: tuple(p.shape) for n, p in adapted.named_parameters() if state.ADAPTER in n}
    adapted.unload()
    drawn = state.draw_adapter({name: shape for name, shape in shapes.items() if ".lora_A." in name})
    tensors = {name: drawn[name] if name in drawn else torch.zeros(shape) for name, shape in shapes.items()}
    return {name.replace(_IN_ENGINE, ".weight"): tensor for name, tensor in tensors.items()}


def _check_fits(name: str, folder: Path, theirs: Mapping[str, tuple[int, ...]], ours: Mapping[str, Any]) -> None:
    differing = theirs.items() ^ {key: tuple(tensor.shape) for key, tensor in ours.items()}.items()
    if differing:
        raise TrainingError(
            f"the adapter in {folder}, which policy {name!r} begins with, does not fit. {len(differing)} tensors have "
            f"another shape or are in one of the two alone, {min(key for key, _ in differing)!r} among them.",
            next_step="It has to be one of this model, in the layers of lora_target_modules.",
        )


def _padded(name: str, tensor: Any, rank: int) -> Any:
    """An adapter's matrix with zeros up to the rank."""
    import torch

    side = 0 if ".lora_A." in name else 1
    more = list(tensor.shape)
    more[side] = rank - tensor.shape[side]
    return torch.cat([tensor, tensor.new_zeros(more)], dim=side) if more[side] else tensor


def _cut(name: str, tensor: Any, rank: int) -> Any:
    """The part of a matrix that is not padding."""
    return tensor[:rank] if ".lora_A." in name else tensor[:, :rank]


def _set_rate(held: _PolicyState, rate: float, of_run: float) -> None:
    """Have a state that has not learned yet learn at another rate."""
    for group in held.groups:
        group.update({key: group[key] / of_run * rate for key in ("lr", "initial_lr") if key in group})
    for key in ("base_lrs", "_last_lr"):
        held.schedule[key] = [value / of_run * rate for value in held.schedule[key]]
