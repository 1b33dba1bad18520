"""Weights from a checkpoint folder (Hugging Face layout: config, safetensors, tokenizer) into memory."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import torch

from lightstream.schemas.errors import TrainingError

from ...run.model.attention import attention_of
from .trial import trial

INDEX_FILE = "model.safetensors.index.json"
WEIGHTS_FILE = "model.safetensors"

EXACT_PARAMETERS_MAX = 5_000_000
"""A model of so many can afford float64."""

PUBLISH_ANEW = "Restore the folder, or write it again (`save_pretrained`) and publish it as a new version."


def checkpoint_folder(url: str) -> Path:
    """The local folder that ``url`` (a path or ``file://…``) names.

    Raises:
        TrainingError: it is not a local folder, or has no ``config.json``.
    """
    path = Path(url.removeprefix("file://"))
    if not path.exists():
        raise TrainingError(
            f"the checkpoint {path} is gone.",
            next_step="If the data folder was moved, LIGHTSTREAM_DATA_DIR (or LIGHTSTREAM_CHECKPOINT_ROOT) names its "
            "place; else restore the folder.",
        )
    if not (path / "config.json").is_file():
        raise TrainingError(
            f"{url!r} is not a checkpoint: there is no {path / 'config.json'}.",
            next_step="A checkpoint is a local folder with config.json, *.safetensors and a tokenizer.",
        )
    return path


def preload() -> None:
    """Import the libraries of loading and of the first answer: transformers takes seconds, which a waiting server
    has."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

    del AutoModelForCausalLM, AutoTokenizer, DynamicCache  # resolving the lazy names is the import


def load_model(folder: Path, device: torch.device, dtype: torch.dtype) -> Any:
    """A causal language model in evaluation mode, without gradients.

    A tiny one computes in float64 if it can: rounding depends on what else is in a batch, and would now and then change
    which token is drawn.

    Raises:
        TrainingError: the folder's files are missing, damaged, incomplete, or of an architecture that is not known or
            that this server cannot generate with (see :mod:`.trial`).
    """
    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoModelForCausalLM

    load_config: Any = AutoConfig.from_pretrained
    load: Any = AutoModelForCausalLM.from_pretrained  # what it returns depends on its arguments
    model: Any
    about: dict[str, Any]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            config = load_config(folder, local_files_only=True)
            model, about = load(
                folder,
                config=config,
                dtype=dtype,
                attn_implementation=attention_of(config),
                local_files_only=True,
                output_loading_info=True,
            )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise TrainingError(f"the checkpoint {folder} cannot be loaded: {error}.", next_step=PUBLISH_ANEW) from error
    missing = sorted(about["missing_keys"])  # transformers would fill them with chance
    if missing:
        raise _lacking(folder, missing)
    model = model.to(device).eval().requires_grad_(False)
    if dtype is torch.float32 and device.type == "cpu" and model.num_parameters() <= EXACT_PARAMETERS_MAX:
        model = model.double()
        if trial(model) is None:
            return model
        model = model.float()  # mixtures of experts have no float64
    if problem := trial(model):
        raise TrainingError(
            f"the policy server cannot serve {type(model).__name__} ({folder}): {problem}.",
            next_step="Serve it with vLLM: `lightstream up`, and `lightstream vllm` beside it.",
        )
    return model


def load_tokenizer(folder: Path) -> Any:
    """The checkpoint's tokenizer, with a chat template.

    Raises:
        TrainingError: there is none, or it has no chat template.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise TrainingError(f"the tokenizer of {folder} cannot be loaded: {error}.", next_step=PUBLISH_ANEW) from error
    if not tokenizer.chat_template:
        raise TrainingError(
            f"the tokenizer of {folder} has no chat template; chat completions need one.",
            next_step="Set `tokenizer.chat_template`, and save the tokenizer into the folder.",
        )
    return tokenizer


def end_of_turn_ids(folder: Path, tokenizer: Any) -> frozenset[int]:
    """The tokens that end an answer: the tokenizer's and the folder's generation configuration's (or, without one, its
    model's).

    Raises:
        TrainingError: the configuration cannot be read.
    """
    from transformers import AutoConfig, GenerationConfig

    read: Any = GenerationConfig
    try:
        if (folder / "generation_config.json").is_file():
            config = read.from_pretrained(folder, local_files_only=True)
        else:
            config = read.from_model_config(AutoConfig.from_pretrained(folder, local_files_only=True))
    except (OSError, ValueError, KeyError) as error:
        raise TrainingError(
            f"the configuration of {folder} cannot be read: {error}.", next_step=PUBLISH_ANEW
        ) from error
    ids: int | list[int] | None = config.eos_token_id
    own = ids if isinstance(ids, list) else [ids]
    return frozenset(token for token in [*own, tokenizer.eos_token_id] if token is not None)


def overwrite_weights(model: Any, folder: Path) -> None:
    """Replace the weights of ``model`` by the weights in ``folder``, of the same architecture; far quicker than a new
    load.

    Raises:
        TrainingError: files are missing or damaged, or a tensor is missing, left over or of another shape. The model
            must not be used then: some of its weights may be the new ones.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    parameters: dict[str, torch.Tensor] = model.state_dict()
    written: set[int] = set()
    try:
        with torch.no_grad():
            for file in _weight_files(folder):
                for name, tensor in load_file(file).items():
                    parameter = parameters[name]
                    if tensor.shape != parameter.shape:
                        raise TrainingError(
                            f"{name!r} of {folder} has the shape {tuple(tensor.shape)}, not {tuple(parameter.shape)}.",
                            next_step="Do config.json and the weights belong together? " + PUBLISH_ANEW,
                        )
                    parameter.copy_(tensor)
                    written.add(parameter.data_ptr())
    except (OSError, KeyError, ValueError, RuntimeError, SafetensorError) as error:
        raise TrainingError(
            f"the weights of {folder} do not fit: {type(error).__name__}: {error}.", next_step=PUBLISH_ANEW
        ) from error
    missing = [name for name, tensor in parameters.items() if tensor.data_ptr() not in written]
    if missing:
        raise _lacking(folder, missing)


def _lacking(folder: Path, missing: list[str]) -> TrainingError:
    return TrainingError(
        f"the weights of {folder} lack {len(missing)} tensors, {missing[0]!r} among them.", next_step=PUBLISH_ANEW
    )


def _weight_files(folder: Path) -> list[Path]:
    index = folder / INDEX_FILE
    if not index.is_file():
        return [folder / WEIGHTS_FILE]
    names: dict[str, str] = json.loads(index.read_text("utf-8"))["weight_map"]
    return [folder / name for name in sorted(set(names.values()))]
