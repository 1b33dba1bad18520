"""A checkpoint's files: ``model.safetensors`` for all, ``optimizer.safetensors`` and ``trainer.json`` for a resume.

Where an adapter is trained, a resume has ``adapter.safetensors`` in place of the model, which stays the run's first.
Nothing is pickled. Loading gives back every number to the bit.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightstream.schemas.errors import TrainingError

from ...run.checkpoint import link_or_copy

MODEL_FILE = "model.safetensors"
ADAPTER_FILE = "adapter.safetensors"
OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "trainer.json"
CRITIC_FOLDER = "critic"
"""Within a checkpoint: the critic's weights, optimiser and random state, by the same names."""

_CHANGING = (ADAPTER_FILE, OPTIMIZER_FILE, STATE_FILE)
ADAPTER = ".lora_"
"""In the names of an adapter's parameters, as peft has them."""
_WEIGHTS_PATTERN = "model*.safetensors*"


def save_weights(
    folder: Path, engine: Any, *, static_files_from: Path | None, dtype: str = "float32", rank: int = 0
) -> None:
    """Write the model of a verl engine into an empty folder; an adapter is merged into it.

    Args:
        folder: where to.
        engine: the engine of a ``TrainingWorker``.
        static_files_from: a folder whose configuration and tokenizer files are shared (hard links); ``None``: none are.
        dtype: of the weights, by torch's name.
        rank: of this process among those that hold the model; only rank 0 writes.
    """
    import torch

    weights = {
        name: tensor.detach().cpu().to(getattr(torch, dtype)).contiguous() for name, tensor in _parameters(engine)
    }
    if getattr(engine.model_config.hf_config, "tie_word_embeddings", False):
        weights.pop("lm_head.weight", None)  # the same tensor as the embedding
    if rank:
        return
    _write(weights, folder / MODEL_FILE, metadata={"format": "pt"})
    _link_static_files(static_files_from, folder)


def save(folder: Path, engine: Any, *, static_files_from: Path | None, rank: int = 0) -> None:
    """Write the state of a verl engine into an empty folder.

    Args:
        folder: where to.
        engine: the engine of a ``TrainingWorker``.
        static_files_from: a folder whose configuration and tokenizer files are shared (hard links); ``None``: none are.
        rank: of this process among those that hold the model; only rank 0 writes.
    """
    adapter = {
        name: whole(tensor).detach().cpu().contiguous()
        for name, tensor in engine.module.state_dict().items()
        if ADAPTER in name
    }
    if not adapter:
        save_weights(folder, engine, static_files_from=static_files_from, rank=rank)
    elif rank == 0:
        _write(adapter, folder / ADAPTER_FILE)
        _link_static_files(static_files_from, folder)
    tensors, numbers = _optimizer_state(engine)
    if rank:
        return
    if tensors:
        _write(tensors, folder / OPTIMIZER_FILE)
    scheduler = {name: value for name, value in engine.lr_scheduler.state_dict().items() if name != "lr_lambdas"}
    (folder / STATE_FILE).write_text(
        json.dumps({"optimizer": numbers, "scheduler": scheduler, "random": _random_state(engine)}), "utf-8"
    )


def begin_adapter(engine: Any) -> None:
    """Give an adapter the first weights that it has in every process, and whenever the engine is made again.

    They are distributed as peft's (Kaiming, uniform), whose own follow from what was drawn before.
    """
    import torch

    parameters = dict(engine.module.named_parameters())
    drawn = draw_adapter({name: tuple(p.shape) for name, p in parameters.items() if ".lora_A." in name})
    with torch.no_grad():
        for name, tensor in drawn.items():
            parameters[name].copy_(placed_like(parameters[name], tensor))


def draw_adapter(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """First values of an adapter's inner matrices, (rank, inputs) each, in the order in which they are named."""
    import torch

    chance = torch.Generator().manual_seed(0)
    return {name: (2 * torch.rand(shape, generator=chance) - 1) / shape[1] ** 0.5 for name, shape in shapes.items()}


@contextmanager
def without_adapter(engine: Any) -> Generator[None]:
    """Have the model compute as if it had no adapter.

    peft's own switch freezes the adapter's parameters meanwhile, which FSDP2 then takes for good.
    """
    scalings = [
        (module.scaling, dict(module.scaling)) for module in engine.module.modules() if hasattr(module, "lora_A")
    ]
    for scaling, _ in scalings:
        scaling.update(dict.fromkeys(scaling, 0.0))
    try:
        yield
    finally:
        for scaling, before in scalings:
            scaling.update(before)


def load(folder: Path, engine: Any) -> bool:
    """Give an engine, whose weights come from ``folder`` already, what was saved with them: optimiser, random state.

    An adapter, too, whose model the engine has.

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
    if (folder / ADAPTER_FILE).is_file():
        _load_adapter(folder / ADAPTER_FILE, parameters)
    for key, tensor in tensors.items():
        name, _, field = key.rpartition("/")
        if name not in parameters:
            raise TrainingError(
                f"the optimiser state in {folder} has a parameter {name!r} that the model lacks.",
                next_step="Restore the folder, or start a new run with another run_id and trainer_id.",
            )
        engine.optimizer.state[parameters[name]][field] = placed_like(parameters[name], tensor)
    for group, stored in zip(engine.optimizer.param_groups, values["optimizer"], strict=True):
        group.update(stored)
    # The schedule's functions are made from the options, not stored; None leaves them as they are.
    functions = {"lr_lambdas": [None] * len(engine.optimizer.param_groups)}
    engine.lr_scheduler.load_state_dict(values["scheduler"] | functions)
    _restore_random_state(values["random"])
    return True


def _parameters(engine: Any) -> Iterator[tuple[str, Any]]:
    """Names and whole tensors of the model as servers know it."""
    if not hasattr(engine.module, "peft_config"):
        yield from engine.get_per_tensor_param()[0]
        return
    tensors = engine.module.state_dict()
    for name, tensor in tensors.items():
        if ADAPTER in name:
            continue
        value = whole(tensor).detach()
        layer, in_layer, field = name.rpartition(".base_layer.")
        if in_layer and field == "weight":
            down, up = (whole(tensors[f"{layer}.lora_{side}.default.weight"]).detach() for side in "AB")
            value = value + engine.module.get_submodule(layer).scaling["default"] * (up @ down)
        yield name.removeprefix("base_model.model.").replace(".base_layer.", "."), value


def _load_adapter(file: Path, parameters: dict[str, Any]) -> None:
    import torch
    from safetensors.torch import load_file

    adapter = load_file(file)
    ours = {name: tuple(p.shape) for name, p in parameters.items() if ADAPTER in name}
    theirs = {name: tuple(tensor.shape) for name, tensor in adapter.items()}
    if ours != theirs:
        raise TrainingError(
            f"the adapter in {file} is another than the one to train: {len(theirs.items() ^ ours.items())} of their "
            "tensors differ.",
            next_step="Set lora_rank and lora_target_modules back, or start a new run with another trainer_id.",
        )
    with torch.no_grad():
        for name, tensor in adapter.items():
            parameters[name].copy_(placed_like(parameters[name], tensor))


def _write(tensors: dict[str, Any], file: Path, *, metadata: dict[str, str] | None = None) -> None:
    """Write tensors. A full disk is an OSError, as everywhere else."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(tensors, file, metadata=metadata)
    except SafetensorError as error:
        raise OSError(f"{file.name}: {error}") from error


def _link_static_files(source: Path | None, folder: Path) -> None:
    for path in () if source is None else source.iterdir():
        if path.is_file() and path.name not in _CHANGING and not path.match(_WEIGHTS_PATTERN):
            link_or_copy(path, folder / path.name)


def whole(tensor: Any) -> Any:
    """All of a tensor of which processes may hold a part each; a collective call then."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def _optimizer_state(engine: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    import torch

    names = {parameter: name for name, parameter in engine.module.named_parameters()}
    tensors: dict[str, Any] = {}
    for parameter, fields in engine.optimizer.state.items():
        for field, value in fields.items():
            tensor = whole(torch.as_tensor(value))
            tensors[f"{names[parameter]}/{field}"] = tensor.detach().cpu().contiguous()
    groups = [
        {
            name: value
            for name, value in group.items()
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        }
        for group in engine.optimizer.param_groups
    ]
    return tensors, groups


def placed_like(parameter: Any, tensor: Any) -> Any:
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
