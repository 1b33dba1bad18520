"""Adapters (LoRA) on a model that is in memory once: each adds its part to the model's layers.

peft puts adapters into the model's modules, which the engine's thread computes with while another reads the next
adapter. Here a model is prepared once, when it is loaded; an adapter is a table of matrices beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from lightstream.schemas.errors import TrainingError

from ...run.checkpoint.adapter import ADAPTER_CONFIG, read_adapter, read_shape

_PREFIX = "base_model.model."
_DOWN, _UP = ".lora_A.weight", ".lora_B.weight"

Matrices: TypeAlias = Mapping[str, tuple[Tensor, Tensor]]
"""Layer -> (rank, inputs) and (outputs, rank)."""


def is_adapter(folder: Path) -> bool:
    """Whether a folder has an adapter, not a model."""
    return (folder / ADAPTER_CONFIG).is_file()


def carries_adapters(folder: Path) -> bool:
    """Whether a model's folder has adapters of it, each in a folder of its own: then others may follow."""
    return any(is_adapter(path) for path in folder.iterdir() if path.is_dir())


def base_of(folder: Path) -> Path:
    """The folder of an adapter's model.

    Raises:
        TrainingError: the adapter's configuration cannot be read, or does not name one.
    """
    base = read_shape(folder).base
    found = (folder / base).resolve()
    if not base or not (found / "config.json").is_file():
        raise TrainingError(
            f"the adapter in {folder} names the model {base!r}, which is no folder with a config.json.",
            next_step="Restore the model's folder; base_model_name_or_path in adapter_config.json names it.",
        )
    return found


class SharedModel:
    """A model that computes with one adapter at a time, or with none. Only one thread may compute.

    Args:
        model: a causal language model, whose linear layers look for an adapter from now on.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._in_use: tuple[Matrices, float] = ({}, 1.0)
        for name, layer in model.named_modules():
            if isinstance(layer, nn.Linear):
                layer.register_forward_hook(partial(self._add, name))

    def __call__(self, adapter: tuple[Matrices, float], **arguments: Any) -> Any:
        """The model's output, with an adapter's matrices and the factor of what they add."""
        self._in_use = adapter
        return self.model(**arguments)

    def _add(self, layer: str, _module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        matrices, scaling = self._in_use
        pair = matrices.get(layer)
        if pair is None:
            return None
        return output + scaling * nn.functional.linear(nn.functional.linear(inputs[0], pair[0]), pair[1])

    def read(self, folder: Path, *, rank_max: int) -> AdaptedModel:
        """The model with the adapter of a folder.

        Raises:
            TrainingError: it cannot be read, its rank is larger than allowed, or it is of another model.
        """
        shape = read_shape(folder)
        if shape.rank > rank_max:
            raise TrainingError(
                f"the adapter in {folder} has the rank {shape.rank}; this server allows {rank_max}.",
                next_step="Train one of a smaller lora_rank, or raise LIGHTSTREAM_POLICY_LORA_RANK_MAX.",
            )
        layers = {n: layer for n, layer in self.model.named_modules() if isinstance(layer, nn.Linear)}
        tensors = read_adapter(folder)
        matrices: dict[str, tuple[Tensor, Tensor]] = {}
        for name in sorted(tensors):
            layer = name.removeprefix(_PREFIX).removesuffix(_DOWN)
            if not name.endswith(_DOWN):
                if name.replace(_UP, _DOWN) not in tensors or not name.endswith(_UP):
                    raise _other_model(folder, name)
                continue
            down, up = tensors[name], tensors.get(name.replace(_DOWN, _UP))
            target = layers.get(layer)
            if target is None or up is None:
                raise _other_model(folder, name)
            if down.shape != (shape.rank, target.in_features) or up.shape != (target.out_features, shape.rank):
                raise _other_model(folder, name)
            weight = target.weight
            matrices[layer] = down.to(weight.device, weight.dtype), up.to(weight.device, weight.dtype)
        return AdaptedModel(self, matrices, shape.scaling)

    def plain(self) -> AdaptedModel:
        """The model itself."""
        return AdaptedModel(self, {}, 1.0)


def _other_model(folder: Path, name: str) -> TrainingError:
    return TrainingError(
        f"the adapter in {folder} does not fit its model: {name!r}.",
        next_step="Do the adapter and the folder that its configuration names belong together?",
    )


@dataclass(frozen=True, slots=True, eq=False)
class AdaptedModel:
    """A shared model with one adapter, as a model: it is called as that is."""

    shared: SharedModel
    matrices: Matrices
    scaling: float

    def __call__(self, **arguments: Any) -> Any:
        return self.shared((self.matrices, self.scaling), **arguments)

    @property
    def device(self) -> torch.device:
        """Of the model's weights."""
        device: torch.device = self.shared.model.device
        return device

    @property
    def config(self) -> Any:
        """The model's."""
        return self.shared.model.config

    @property
    def generation_config(self) -> Any:
        """The model's."""
        return self.shared.model.generation_config
