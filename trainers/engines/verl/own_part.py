"""A model that several processes hold: each reads its own part.

verl reads it whole in the first process, and in all of them where the output layer is tied to the embedding. Here
each process makes the model without weights, has FSDP2 divide it, and reads what is its own, a tensor at a time.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lightstream.schemas.errors import TrainingError

from .state import ADAPTER, MODEL_FILE, MODEL_INDEX_FILE, unwrapped
from .tensor_files import RESTORE, TensorReader


class NotReadInPartsError(Exception):
    """The files have other tensors than the model: transformers converts them as it reads."""


def weight_files(folder: Path) -> list[Path]:
    """The files with a model's weights; empty where they are in none of safetensors.

    Raises:
        TrainingError: the index in the folder names one that is missing.
    """
    index = folder / MODEL_INDEX_FILE
    if (folder / MODEL_FILE).is_file():
        return [folder / MODEL_FILE]
    if not index.is_file():
        return []
    names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
    for name in names:
        if not (folder / name).is_file():
            raise TrainingError(f"{folder / name} is missing, which {index.name} names.", next_step=RESTORE)
    return [folder / name for name in names]


@contextmanager
def read_by_each(files: list[Path]) -> Generator[None]:
    """Have verl's models read this process's own part from these files while they are made.

    Raises:
        NotReadInPartsError: a model cannot be; all processes find the same. Nothing was exchanged.
        TrainingError: a file is damaged.
    """
    import verl.utils.model as models
    from verl.workers.engine.fsdp import transformer_impl

    init_empty_weights: Any = vars(import_module("accelerate"))["init_empty_weights"]  # it has no types
    untyped, engine = _Replaced(models), _Replaced(transformer_impl)
    stored = TensorReader(files)
    find: Any = models.get_hf_auto_model_class

    def empty(new: Any, config: Any, dtype: Any, may_lack: bool) -> Any:
        with init_empty_weights(include_buffers=False):
            model = new.from_config(config, dtype=dtype)
        model.tie_weights()  # which the registration of empty parameters undoes
        _check_names(model, stored.shapes, may_lack=may_lack)
        return model.eval()

    def get_hf_auto_model_class(hf_config: Any) -> Any:
        kind = find(hf_config)

        def from_pretrained(*, config: Any, torch_dtype: Any, **_: Any) -> Any:
            return empty(kind, config, torch_dtype, may_lack=False)

        return SimpleNamespace(from_pretrained=from_pretrained)

    def load_valuehead_model(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
        from transformers import AutoModelForTokenClassification

        return empty(AutoModelForTokenClassification, model_config, torch_dtype, may_lack=True)

    def fill(model: Any, full_state: Any, device_mesh: Any = None, cpu_offload: Any = None) -> None:
        from verl.utils.device import get_device_id

        _fill(model, stored, get_device_id(), offloaded=cpu_offload is not None)

    with (
        untyped.by("get_hf_auto_model_class", get_hf_auto_model_class),
        untyped.by("load_valuehead_model", load_valuehead_model),
        engine.by("get_init_weight_context_manager", lambda **_: _here),
        engine.by("fsdp2_load_full_state_dict", fill),
    ):
        yield


class _Replaced:
    """Names of a module that are another thing for a while."""

    def __init__(self, module: Any) -> None:
        self._module = module

    @contextmanager
    def by(self, name: str, value: Any) -> Generator[None]:
        before = getattr(self._module, name)
        setattr(self._module, name, value)
        try:
            yield
        finally:
            setattr(self._module, name, before)


@contextmanager
def _here() -> Generator[None]:
    """verl's context for a model with weights."""
    yield


def _check_names(model: Any, stored: Mapping[str, Any], *, may_lack: bool) -> None:
    """Refuse what the files have not as it is here.

    Args:
        may_lack: whether a head may be missing; it is zero then.
    """
    lacking = {name for name, _ in model.named_parameters() if name not in stored}  # a tied one has the first name
    if may_lack:
        lacking = {name for name in lacking if name.startswith(f"{model.base_model_prefix}.")}
    if lacking:
        raise NotReadInPartsError


def _fill(model: Any, stored: TensorReader, device: Any, *, offloaded: bool) -> None:
    """Give a model that FSDP2 has divided its weights. What the files lack, an adapter or a head, is zero."""
    import torch

    buffers = dict(model.named_buffers())
    same: dict[int, list[tuple[Any, str]]] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            same.setdefault(id(parameter), []).append((module, name))
    places = list(same.values())
    model.to_empty(device="cpu" if offloaded else device)
    for (first, name), *others in places:
        for module, other in others:
            setattr(module, other, getattr(first, name))
    for name, buffer in buffers.items():
        module, _, last = name.rpartition(".")
        setattr(model.get_submodule(module), last, buffer.to(device))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            original = unwrapped(name)
            if ADAPTER in name or original not in stored.shapes:
                parameter.zero_()
            else:
                stored.fill(original, parameter)
        for name, buffer in model.named_buffers():
            if unwrapped(name) in stored.shapes:
                stored.fill(unwrapped(name), buffer)
