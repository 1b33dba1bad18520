"""A checkpoint's files: ``model.safetensors`` for all, ``optimizer.safetensors`` and ``trainer.json`` for a resume.

Where an adapter is trained, a resume has ``adapter.safetensors`` in place of the model, which stays the run's first.
Nothing is pickled. Loading gives back every number to the bit.

Several processes write parts: of the model some tensors each (``model-00002-of-00008.safetensors``, with transformers'
index), of the optimiser's state what each has (``optimizer-00002-of-00008.safetensors``). Any number of processes reads
them. No process has more than one whole tensor at a time.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from lightstream.schemas.errors import TrainingError

from ...run.checkpoint import link_or_copy
from .shards import Shard
from .tensor_files import RESTORE, Block, TensorReader, TensorWriter

MODEL_FILE = "model.safetensors"
ADAPTER_FILE = "adapter.safetensors"
MODEL_INDEX_FILE = "model.safetensors.index.json"
"""transformers' index of a model in several files."""
OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "trainer.json"
CRITIC_FOLDER = "critic"
"""Within a checkpoint: the critic's weights, optimiser and random state, by the same names."""

TIED = "lm_head.weight"
"""Where a configuration ties it to the embedding, it is the same tensor, and in no file."""

_CHANGING = (ADAPTER_FILE, STATE_FILE)
ADAPTER = ".lora_"
"""In the names of an adapter's parameters, as peft has them."""
_WEIGHTS_PATTERNS = ("model*.safetensors*", "optimizer*.safetensors")


def save_weights(
    folder: Path, engine: Any, *, static_files_from: Path | None, dtype: str = "float32", rank: int = 0
) -> None:
    """Write the model of a verl engine into an empty folder; an adapter is merged into it.

    A process has one whole tensor at a time.

    Args:
        folder: where to.
        engine: the engine of a ``TrainingWorker``.
        static_files_from: a folder whose configuration and tokenizer files are shared (hard links); ``None``: none are.
        dtype: of the weights, by torch's name.
        rank: of this process among those that hold the model; only rank 0 writes.

    Raises:
        OSError: the disk is full.
    """
    if rank:
        for _ in _parameters(engine):  # others need the part of this process
            pass
        return
    _write_parameters(folder / MODEL_FILE, engine, _written(engine), dtype)
    _link_static_files(static_files_from, folder)


def save(folder: Path, engine: Any, *, static_files_from: Path | None, shard: Shard | None = None) -> None:
    """Write the state of a verl engine into an empty folder.

    Of several processes each writes its share: some tensors of the model, whole, and its part of the optimiser's state.
    A process has one whole tensor at a time.

    Args:
        folder: where to.
        engine: the engine of a ``TrainingWorker``.
        static_files_from: a folder whose configuration and tokenizer files are shared (hard links); ``None``: none are.
        shard: which of the processes that hold the model this is; rank 0 writes all that has no parts.

    Raises:
        OSError: the disk is full.
    """
    shard = shard or Shard()
    adapter = {name: tensor for name, tensor in engine.module.state_dict().items() if ADAPTER in name}
    if adapter:
        _write_tensors(folder / ADAPTER_FILE, adapter, to_write=shard.rank == 0)
    else:
        _save_model(folder, engine, shard)
    _write_optimizer(folder / part_name(OPTIMIZER_FILE, shard.rank, shard.count), engine)
    if shard.rank:
        return
    _link_static_files(static_files_from, folder)
    scheduler = {name: value for name, value in engine.lr_scheduler.state_dict().items() if name != "lr_lambdas"}
    values = {
        "optimizer": _group_numbers(engine),
        "scheduler": scheduler,
        "random": _random_state(engine),
        "optimizer_files": shard.count if engine.optimizer.state else 0,
    }
    (folder / STATE_FILE).write_text(json.dumps(values), "utf-8")


def part_name(name: str, rank: int, count: int) -> str:
    """The name of a process's part of a file, ``model-00002-of-00008.safetensors``; of one process, the file's own."""
    stem, _, suffix = name.rpartition(".")
    return name if count == 1 else f"{stem}-{rank + 1:05d}-of-{count:05d}.{suffix}"


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
    """Give an engine, whose weights come from ``folder`` already, the saved rest: optimiser, random state.

    An adapter, too, whose model the engine has.

    Returns:
        False where the folder has no such state (version 0): the engine is unchanged.

    Raises:
        TrainingError: the state is of another model, or a part of it is missing.
    """
    if not (folder / STATE_FILE).is_file():
        return False
    values = json.loads((folder / STATE_FILE).read_text("utf-8"))
    parameters = dict(engine.module.named_parameters())
    if (folder / ADAPTER_FILE).is_file():
        _load_adapter(folder / ADAPTER_FILE, parameters)
    files = values.get("optimizer_files", int((folder / OPTIMIZER_FILE).is_file()))  # 0.2.0 had one
    if files:
        _load_optimizer([folder / part_name(OPTIMIZER_FILE, i, files) for i in range(files)], engine, parameters)
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
        yield unwrapped(name), value


def unwrapped(name: str) -> str:
    """A parameter's name in the model itself, where peft has wrapped it."""
    return name.removeprefix("base_model.model.").replace(".base_layer.", ".")


def _load_adapter(file: Path, parameters: dict[str, Any]) -> None:
    adapter = TensorReader([file])
    ours = {name: tuple(p.shape) for name, p in parameters.items() if ADAPTER in name}
    if ours != adapter.shapes:
        raise TrainingError(
            f"the adapter in {file} is another than the one to train: {len(adapter.shapes.items() ^ ours.items())} of "
            "their tensors differ.",
            next_step="Set lora_rank and lora_target_modules back, or start a new run with another trainer_id.",
        )
    for name in ours:
        adapter.fill(name, parameters[name])


def _written(engine: Any) -> dict[str, Block]:
    """Each tensor of :func:`_parameters`, in the order of their names; nothing is gathered for it."""
    import torch
    from verl.utils.model import convert_weight_keys
    from verl.workers.engine.fsdp.utils import unfuse_moe_params

    tensors = engine.module.state_dict()
    shapes: dict[str, tuple[int, ...]]
    if hasattr(engine.module, "peft_config"):
        shapes = {unwrapped(name): tuple(tensor.shape) for name, tensor in tensors.items() if ADAPTER not in name}
    else:
        convert, unfuse = cast("Any", convert_weight_keys), cast("Any", unfuse_moe_params)
        empty = ((n, torch.empty(t.shape, device="meta")) for n, t in convert(tensors, engine.module).items())
        described = unfuse(empty, engine.model_config.hf_config.model_type)
        shapes = {name: tuple(tensor.shape) for name, tensor in described}
    if getattr(engine.model_config.hf_config, "tie_word_embeddings", False):
        shapes.pop(TIED, None)
    return {name: Block.all_of(shapes[name]) for name in sorted(shapes)}


def _write_parameters(file: Path, engine: Any, blocks: Mapping[str, Block], dtype: str) -> None:
    """Write those tensors of the model of which there is a block; all are gathered, as others may write the rest."""
    with TensorWriter(file, blocks, dtype=dtype) as writer:
        for name, tensor in _parameters(engine):
            if name in blocks:
                writer.write(name, tensor)


def _save_model(folder: Path, engine: Any, shard: Shard) -> None:
    """Write the model, each process some of its tensors, and the index by which others find them."""
    tensors = _written(engine)
    shares = divided(tensors, shard.count)
    _write_parameters(folder / part_name(MODEL_FILE, shard.rank, shard.count), engine, shares[shard.rank], "float32")
    if shard.count > 1 and shard.rank == 0:
        of = {name: part_name(MODEL_FILE, rank, shard.count) for rank, share in enumerate(shares) for name in share}
        size = sum(4 * math.prod(block.shape) for block in tensors.values())
        index = {"metadata": {"total_size": size}, "weight_map": of}
        (folder / MODEL_INDEX_FILE).write_text(json.dumps(index, indent=2) + "\n", "utf-8")


def divided(blocks: Mapping[str, Block], count: int) -> list[dict[str, Block]]:
    """The tensors in ``count`` shares, nearly equal in size: each goes, the largest first, where there is least."""
    shares: list[dict[str, Block]] = [{} for _ in range(count)]
    sizes = [0] * count
    for name in sorted(blocks, key=lambda n: (-math.prod(blocks[n].shape), n)):
        smallest = sizes.index(min(sizes))
        shares[smallest][name] = blocks[name]
        sizes[smallest] += math.prod(blocks[name].shape)
    return shares


def _write_tensors(file: Path, tensors: Mapping[str, Any], *, to_write: bool) -> None:
    """Write tensors whole, which are gathered one at a time."""
    if not to_write:
        for tensor in tensors.values():
            whole(tensor)
        return
    with TensorWriter(file, {name: Block.all_of(tensor.shape) for name, tensor in tensors.items()}) as writer:
        for name, tensor in tensors.items():
            writer.write(name, whole(tensor))


def _link_static_files(source: Path | None, folder: Path) -> None:
    for path in () if source is None else source.iterdir():
        if path.is_file() and path.name not in _CHANGING and not any(map(path.match, _WEIGHTS_PATTERNS)):
            link_or_copy(path, folder / path.name)


def whole(tensor: Any) -> Any:
    """All of a tensor whose parts processes may hold; a collective call then."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def _write_optimizer(file: Path, engine: Any) -> None:
    """Write the part of the optimiser's state that this process has."""
    import torch

    names = {parameter: name for name, parameter in engine.module.named_parameters()}
    state = {
        f"{names[parameter]}/{field}": torch.as_tensor(value)
        for parameter, fields in engine.optimizer.state.items()
        for field, value in fields.items()
    }
    blocks = {key: Block.of(value) for key, value in state.items()}
    blocks = {key: block for key, block in blocks.items() if 0 not in block.shape}
    if not state:
        return
    with TensorWriter(file, blocks) as writer:
        for key in blocks:
            value: Any = state[key]
            writer.write(key, value.to_local() if hasattr(value, "to_local") else value)


def _load_optimizer(files: Sequence[Path], engine: Any, parameters: Mapping[str, Any]) -> None:
    """Read the part of the optimiser's state that this process needs, however many wrote it."""
    import torch

    stored = TensorReader(files)
    for key, shape in stored.shapes.items():
        name, _, field = key.rpartition("/")
        if name not in parameters:
            raise TrainingError(
                f"the optimiser state in {files[0].parent} has a parameter {name!r} that the model lacks.",
                next_step=RESTORE,
            )
        parameter = parameters[name]
        # A counter of steps is no tensor of the parameter's shape; the fused optimiser wants it on the device.
        value = torch.zeros_like(parameter) if shape else torch.zeros((), device=parameter.device)
        stored.fill(key, value)
        engine.optimizer.state[parameter][field] = value


def _group_numbers(engine: Any) -> list[dict[str, Any]]:
    return [
        {
            name: value
            for name, value in group.items()
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        }
        for group in engine.optimizer.param_groups
    ]


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
