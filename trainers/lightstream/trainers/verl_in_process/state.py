"""A checkpoint's files: ``model.safetensors`` for all, ``optimizer.safetensors`` and ``trainer.json`` for a resume.

Nothing is pickled. Loading gives back every number to the bit.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from lightstream.schemas.errors import TrainingError

from ..checkpoint import link_or_copy

__all__ = ["OPTIMIZER_FILE", "STATE_FILE", "load", "save", "save_weights"]

MODEL_FILE = "model.safetensors"
OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "trainer.json"
_CHANGING = (OPTIMIZER_FILE, STATE_FILE)
_WEIGHTS_PATTERN = "model*.safetensors*"


def save_weights(folder: Path, engine: Any, *, static_files_from: Path, dtype: str = "float32", rank: int = 0) -> None:
    """Write the model of a verl engine into an empty folder.

    Args:
        folder: where to.
        engine: the engine of a ``TrainingWorker``.
        static_files_from: a folder whose configuration and tokenizer files are shared (hard links).
        dtype: of the weights, by torch's name.
        rank: of this process among those that hold the model; only rank 0 writes.
    """
    import torch
    from safetensors.torch import save_file

    weights = {
        name: tensor.detach().cpu().to(getattr(torch, dtype)).contiguous()
        for name, tensor in engine.get_per_tensor_param()[0]
    }
    if getattr(engine.model_config.hf_config, "tie_word_embeddings", False):
        weights.pop("lm_head.weight", None)  # the same tensor as the embedding
    if rank:
        return
    save_file(weights, folder / MODEL_FILE, metadata={"format": "pt"})
    for path in static_files_from.iterdir():
        if path.is_file() and path.name not in _CHANGING and not path.match(_WEIGHTS_PATTERN):
            link_or_copy(path, folder / path.name)


def save(folder: Path, engine: Any, *, static_files_from: Path, rank: int = 0) -> None:
    """Write the state of a verl engine into an empty folder.

    Args:
        folder: where to.
        engine: the engine of a ``TrainingWorker``.
        static_files_from: a folder whose configuration and tokenizer files are shared (hard links).
        rank: of this process among those that hold the model; only rank 0 writes.
    """
    from safetensors.torch import save_file

    save_weights(folder, engine, static_files_from=static_files_from, rank=rank)
    tensors, numbers = _optimizer_state(engine)
    if rank:
        return
    if tensors:
        save_file(tensors, folder / OPTIMIZER_FILE)
    scheduler = {name: value for name, value in engine.lr_scheduler.state_dict().items() if name != "lr_lambdas"}
    (folder / STATE_FILE).write_text(
        json.dumps({"optimizer": numbers, "scheduler": scheduler, "random": _random_state(engine)}), "utf-8"
    )


def load(folder: Path, engine: Any) -> bool:
    """Give an engine, whose weights come from ``folder`` already, the optimiser and random state saved with them.

    Returns:
        False where the folder has no such state (version 0): the engine is unchanged.

    Raises:
        TrainingError: the state is of another model.
    """
    if not (folder / STATE_FILE).is_file():
        return False
    from safetensors.torch import load_file

    values = json.loads((folder / STATE_FILE).read_text("utf-8"))
    tensors = load_file(folder / OPTIMIZER_FILE) if (folder / OPTIMIZER_FILE).is_file() else {}
    parameters = dict(engine.module.named_parameters())
    for key, tensor in tensors.items():
        name, _, field = key.rpartition("/")
        if name not in parameters:
            raise TrainingError(
                f"the optimiser state in {folder} has a parameter {name!r} that the model lacks.",
                next_step="Restore the folder, or start a new run with another run_id and trainer_id.",
            )
        engine.optimizer.state[parameters[name]][field] = _placed_like(parameters[name], tensor)
    for group, stored in zip(engine.optimizer.param_groups, values["optimizer"], strict=True):
        group.update(stored)
    # The schedule's functions are made from the options, not stored; None leaves them as they are.
    functions = {"lr_lambdas": [None] * len(engine.optimizer.param_groups)}
    engine.lr_scheduler.load_state_dict(values["scheduler"] | functions)
    _restore_random_state(values["random"])
    return True


def _optimizer_state(engine: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    import torch

    names = {parameter: name for name, parameter in engine.module.named_parameters()}
    tensors: dict[str, Any] = {}
    for parameter, fields in engine.optimizer.state.items():
        for field, value in fields.items():
            whole = value.full_tensor() if hasattr(value, "full_tensor") else torch.as_tensor(value)
            tensors[f"{names[parameter]}/{field}"] = whole.detach().cpu().contiguous()
    groups = [
        {
            name: value
            for name, value in group.items()
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        }
        for group in engine.optimizer.param_groups
    ]
    return tensors, groups


def _placed_like(parameter: Any, tensor: Any) -> Any:
    """A state tensor where its parameter is: on its device, and sharded as it is unless it is a step counter."""
    if tensor.shape != parameter.shape:
        return tensor.to(parameter.device)  # where the fused optimiser wants its counters
    if hasattr(parameter, "device_mesh"):
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(tensor.to(parameter.device), parameter.device_mesh, parameter.placements)
    return tensor.to(parameter.device)


def _random_state(engine: Any) -> dict[str, str]:
    import torch

    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return {name: base64.b64encode(value.numpy().tobytes()).decode("ascii") for name, value in states.items()}


def _restore_random_state(states: dict[str, str]) -> None:
    import torch

    def state(name: str) -> Any:
        return torch.frombuffer(bytearray(base64.b64decode(states[name])), dtype=torch.uint8)

    torch.set_rng_state(state("cpu"))
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(state("cuda"))
