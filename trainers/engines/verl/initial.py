"""Version 0: the initial model, warmed up if asked for, as a checkpoint folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from lightstream.runtime.gc_tuning import without_collection

from ...run.model.attention import attention_of
from ...run.model.chat_template import check_chat_template
from .adapter_slot import write_first_adapters
from .config import VerlConfig
from .images import PROCESSOR_FILE, image_reader, unloadable
from .runtime import choose_device

_PROCESSOR_FILES = (PROCESSOR_FILE, "processor_config.json", "video_preprocessor_config.json", "chat_template.json")
"""Beside those of the tokenizer: what servers need of a model that looks at images."""

_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
"""What a generation configuration says of the model, and not of how to sample from it."""


def write_initial_model(config: VerlConfig, folder: Path, *, seed: int) -> None:
    """Load the model, run the warm-up on it, and write it with its tokenizer into an empty folder (float32).

    Of several policies, each one's first adapter goes into a folder of its name there.
    Of a model that looks at images, the files of its processor too, as they are.

    Raises:
        TrainingError: the model or its tokenizer cannot be loaded, the tokenizer has no chat template, or an adapter
            does not fit.
        OSError: the disk is full.
    """
    with without_collection():
        import torch
        from safetensors import SafetensorError
        from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoTokenizer
        from transformers.utils import logging as transformers_logging

    untyped_logging: Any = transformers_logging
    untyped_logging.disable_progress_bar()
    torch.manual_seed(seed)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    load_config: Any = AutoConfig.from_pretrained
    load_tokenizer: Any = AutoTokenizer.from_pretrained
    model: Any
    try:
        tokenizer = load_tokenizer(config.model)
        sees = image_reader(config.model) is not None
        attention = attention_of(load_config(config.model))
        kind: Any = AutoModelForImageTextToText if sees else AutoModelForCausalLM
        model = kind.from_pretrained(config.model, dtype=torch.float32, attn_implementation=attention)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise unloadable(config.model, error) from error
    check_chat_template(tokenizer, str(config.model))
    if config.warm_up is not None:
        model.to(choose_device(config.device))
        model.train()
        config.warm_up(model, tokenizer)
        model.to("cpu")
    model.generation_config = _tokens_alone(model.generation_config)
    tokenizer.save_pretrained(folder)
    if sees:
        _copy_processor(config.model, folder)
    try:
        model.save_pretrained(folder)
    except SafetensorError as error:
        raise OSError(str(error)) from error
    if config.policies:
        write_first_adapters(config, folder, model)


def _tokens_alone(generation_config: Any) -> Any:
    """The special tokens of a generation configuration, without the rest.

    How to sample is for the training's options and each call to say. Besides, transformers does not save what many
    published models have: a temperature without ``do_sample``.
    """
    from transformers import GenerationConfig

    new_config: Any = GenerationConfig
    return new_config(**{name: getattr(generation_config, name, None) for name in _TOKENS})


def _copy_processor(model: str | Path, folder: Path) -> None:
    from transformers.utils.hub import cached_file

    find: Any = cached_file
    for name in _PROCESSOR_FILES:
        found = find(str(model), name, _raise_exceptions_for_missing_entries=False)
        if found is not None:
            shutil.copyfile(found, folder / name)
