"""Surroundings that verl needs: a platform, a process group of one, and the environment of a worker, for a while."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import warnings
from collections.abc import Generator
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from itertools import accumulate, pairwise
from typing import Any

from lightstream.runtime.gc_tuning import without_collection
from lightstream.schemas.errors import TrainingError

from .chunked_logits import compute_logits_in_chunks
from .images import IMAGE_MODELS, see_an_image_always
from .shards import Shard
from .tensors import micro_batches

logger = logging.getLogger(__name__)

MICRO_BATCH_SIZES = "micro_batch_sizes"
"""Name, in a batch for verl, of how many of its rows are computed at once, one number after another."""

MICRO_BATCH_ROWS_MAX = "micro_batch_rows_max"
"""Name, in a batch for verl, of how many of its rows may be computed at once; ``None``: any number."""

LOGITS_PER_CHUNK_MAX = 64 * 1024 * 1024
"""Logits whose log-sum-exp is taken at once: 256 MiB of float32."""

_PREPARED: list[str] = []
"""The device this process was prepared for."""


def choose_device(wanted: str) -> str:
    """``cuda`` or ``cpu``."""
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return wanted


def load_verl(device: str) -> None:
    """Import verl and set it up for a device. Starts no thread. May be called again, for the same device.

    Raises:
        TrainingError: it is set up for another device.
    """
    if device in _PREPARED:
        return
    if _PREPARED:
        raise TrainingError(
            f"verl is set up for {_PREPARED[0]} in this process and cannot be for {device} too.",
            next_step="Use one device per process.",
        )
    with without_collection():
        _import_verl(device)
    _take_log_probabilities_in_chunks()
    _bound_micro_batches_by_padded_tokens()
    _find_language_models_at_once()
    _load_value_models_as_configured()
    _leave_image_models_to_transformers()
    _PREPARED.append(device)


def _import_verl(device: str) -> None:
    from verl.plugin.platform import set_platform

    if device == "cpu":  # before anything of verl's asks which platform this is
        from .cpu_platform import CpuPlatform

        set_platform(CpuPlatform())
    # The values of a critic are a view, which verl reads alone.
    warnings.filterwarnings("ignore", r"FSDP2-wrapped module .* returned a view tensor", UserWarning)
    logging.getLogger("torch.fx._symbolic_trace").setLevel(logging.ERROR)  # warns of a rename that verl has to follow
    _run_when_asked("verl.utils.dataset")  # readers of data sets, and pandas with them: 0.8 s
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # one for each engine that is not installed, and not used
        warnings.simplefilter("ignore", DeprecationWarning)  # of Ray's names, which verl asks for
        from verl.workers.engine import EngineRegistry

        import_module("verl.workers.engine_workers_tinker")

    if device == "cpu":
        from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, FSDPEngineWithValueHead

        EngineRegistry.register(model_type="language_model", backend="fsdp2", device="cpu")(FSDPEngineWithLMHead)
        EngineRegistry.register(model_type="value_model", backend="fsdp2", device="cpu")(FSDPEngineWithValueHead)
        _keep_frozen_models_unpinned()


def _run_when_asked(package: str) -> None:
    """Run the code of a package of verl's when a name of it is asked for, not already where one of its modules is."""
    spec = None if package in sys.modules else find_spec(package)
    if spec is None or spec.loader is None:
        return
    module, loader = module_from_spec(spec), spec.loader

    def run(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        del vars(module)["__getattr__"]
        loader.exec_module(module)
        return getattr(module, name)

    vars(module)["__getattr__"] = run
    sys.modules[package] = module


@contextlib.contextmanager
def worker_environment(shard: Shard) -> Generator[None]:
    """The variables that verl's Worker reads and sets, and silence for its output; both end with the block."""
    before = dict(os.environ)
    os.environ.update(shard.environment())
    printed = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(printed):
            warnings.simplefilter("ignore")
            yield
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)
        for line in printed.getvalue().splitlines():
            logger.debug("verl: %s", line)


def join_process_group(device: str, shard: Shard) -> None:
    """Be a member of the process group of a model, unless this process is in one. Waits for the other members."""
    from torch import distributed

    if distributed.is_initialized():
        return
    backend = "cpu:gloo" if device == "cpu" else "cpu:gloo,cuda:nccl"
    if shard.count > 1:
        address = f"tcp://{shard.address}"
        distributed.init_process_group(backend, init_method=address, rank=shard.rank, world_size=shard.count)
        return
    new_store: Any = vars(distributed)["HashStore"]  # in memory: no port is opened; the stubs leave it out
    distributed.init_process_group(backend, store=new_store(), rank=0, world_size=1)


def _bound_micro_batches_by_padded_tokens() -> None:
    """Replace verl's division of a batch, which balances real tokens and then pads: 13 times the limit was seen."""
    from torch import distributed
    from verl.utils import tensordict_utils
    from verl.workers.engine.fsdp import transformer_impl

    engine: Any = transformer_impl  # has no types
    balanced: Any = engine.prepare_micro_batches

    def prepare_micro_batches(data: Any, dp_group: Any = None, **others: Any) -> tuple[list[Any], list[list[int]]]:
        sizes = tensordict_utils.get_non_tensor_data(data=data, key=MICRO_BATCH_SIZES, default=None)
        if sizes is not None:
            starts = list(accumulate(sizes, initial=0))
            parts = [list(range(first, end)) for first, end in pairwise(starts)]
            return [tensordict_utils.index_select_tensor_dict(data, part) for part in parts], parts
        if distributed.get_world_size(dp_group) > 1:  # verl's gives equally many to each process
            verls: tuple[list[Any], list[list[int]]] = balanced(data, dp_group=dp_group, **others)
            return verls
        lengths: list[int] = data["input_ids"].offsets().diff().tolist()
        packed = bool(tensordict_utils.get_non_tensor_data(data=data, key="use_remove_padding", default=False))
        rows_max: Any = tensordict_utils.get_non_tensor_data(data=data, key=MICRO_BATCH_ROWS_MAX, default=None)
        parts = micro_batches(lengths, int(data["max_token_len_per_gpu"]), packed=packed, rows_max=rows_max)
        if len(parts) == 1:
            parts = [list(range(len(lengths)))]  # nothing to select
            return [data], parts
        return [tensordict_utils.index_select_tensor_dict(data, part) for part in parts], parts

    engine.prepare_micro_batches = prepare_micro_batches


def _keep_frozen_models_unpinned() -> None:
    """Have verl keep a reference in memory that is not pinned: there is no accelerator to pin it for."""
    from torch.distributed.fsdp import CPUOffloadPolicy
    from verl.workers.engine.fsdp import transformer_impl

    def unpinned(*, pin_memory: bool = False) -> CPUOffloadPolicy:
        return CPUOffloadPolicy(pin_memory=False)

    engine: Any = transformer_impl  # has no types
    engine.CPUOffloadPolicy = unpinned


def _find_language_models_at_once() -> None:
    """Spare verl the search among all multi-modal models, which imports each of them (4 s), for what is trained."""
    import verl.utils.model as models
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    search: Any = models.get_hf_auto_model_class

    def get_hf_auto_model_class(hf_config: Any) -> Any:
        architectures: list[str] = getattr(hf_config, "architectures", None) or [""]
        if architectures[0].endswith("ForCausalLM") and not getattr(hf_config, "auto_map", None):
            return AutoModelForCausalLM
        if hf_config.model_type in IMAGE_MODELS:
            return AutoModelForImageTextToText
        return search(hf_config)

    models.get_hf_auto_model_class = get_hf_auto_model_class


def _leave_image_models_to_transformers() -> None:
    """Spare models that look at images verl's own forward, which expects answers of an older transformers.

    transformers' takes the same positions, of the text and in three dimensions.
    """
    from verl.workers.engine.fsdp import transformer_impl

    engine: Any = transformer_impl  # has no types
    patch: Any = engine.apply_monkey_patch

    def apply_monkey_patch(model: Any, **options: Any) -> None:
        if options.pop("use_fused_kernels", False):
            compute_logits_in_chunks(model)
        if model.config.model_type in IMAGE_MODELS and hasattr(model.model, "visual"):
            see_an_image_always(model)
        else:
            patch(model=model, **options)

    engine.apply_monkey_patch = apply_monkey_patch


def _load_value_models_as_configured() -> None:
    """Replace verl's loading of a critic, which asks for flash-attn whatever the model's configuration names.

    A head that the folder has no weights of begins at zero. Drawn at random, as transformers would, its first values
    would be noise, of the size of rewards and more, and others in each process and at each start.
    """
    import torch
    import verl.utils.model as models
    from transformers import AutoModelForTokenClassification
    from transformers.utils import logging as transformers_logging

    load: Any = AutoModelForTokenClassification.from_pretrained
    untyped_logging: Any = transformers_logging

    def load_valuehead_model(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
        verbosity = untyped_logging.get_verbosity()
        untyped_logging.set_verbosity_error()  # it would tell of the head that is lacking, and of the one left over
        try:
            model, found = load(local_path, dtype=torch_dtype, config=model_config, output_loading_info=True)
        except ValueError as error:  # no class of this kind
            raise TrainingError(
                f"transformers has no model that gives a value for each token of the kind of {local_path!r}: {error}.",
                next_step="Name another one, VERL(critic_model=...), or take an advantage that needs no critic.",
            ) from error
        finally:
            untyped_logging.set_verbosity(verbosity)
        lacking = set(found["missing_keys"])
        trunk = sorted(name for name in lacking if name.startswith(f"{model.base_model_prefix}."))
        if trunk:
            raise TrainingError(
                f"the critic's folder {local_path!r} lacks weights of its model: {', '.join(trunk[:3])} …",
                next_step="Name a folder as `save_pretrained` writes it.",
            )
        with torch.no_grad():
            for name in lacking:
                model.get_parameter(name).zero_()
        return model

    models.load_valuehead_model = load_valuehead_model


def _take_log_probabilities_in_chunks() -> None:
    """Replace verl's loop over single tokens, which it uses where flash-attn is missing, by one over large chunks.

    The mathematics is the same (logit minus log-sum-exp); a step of 5,000 tokens takes a third of the time on a CPU.
    """
    import torch
    import verl.utils.torch_functional as functional

    def logprobs_from_logits(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        rows: Any = logits.flatten(0, -2)
        wanted: Any = labels.flatten()
        rows_per_chunk = max(1, LOGITS_PER_CHUNK_MAX // rows.shape[-1])
        parts = [
            part.gather(-1, label.unsqueeze(-1)).squeeze(-1).float() - torch.logsumexp(part.float(), dim=-1)
            for part, label in zip(rows.split(rows_per_chunk), wanted.split(rows_per_chunk), strict=True)
        ]
        return torch.cat(parts).view(labels.shape)

    functional.logprobs_from_logits_v2 = logprobs_from_logits
