"""A tiny random Qwen2 with a byte-level tokenizer and a chat template, made on the spot without any download.

For tests and demonstrations: 0.1 million parameters at the default size, a vocabulary of the 256 bytes and three
special tokens (padded to 264), so that every text has an encoding and every byte is one token.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

HEAD_SIZE = 32
"""Smallest attention head that all common attention kernels take."""

VOCABULARY_MULTIPLE = 8
"""Rows of the embedding are padded to a multiple of this, as kernels like it."""

POSITIONS_MAX = 32_768

CHAT_TEMPLATE = """\
{%- if tools -%}
{{- '<|im_start|>tools' -}}
{%- for tool in tools -%}{{- '\\n' + (tool['function'] | tojson) -}}{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- for m in messages -%}
{{- '<|im_start|>' + m['role'] + '\\n' -}}
{%- if m['content'] is string -%}{{- m['content'] -}}
{%- elif m['content'] -%}{%- for part in m['content'] -%}{{- part['text'] -}}{%- endfor -%}
{%- endif -%}
{%- for call in m['tool_calls'] or [] -%}
{%- set given = call['function']['arguments'] -%}
{{- '<tool_call>{"name": "' + call['function']['name'] + '", "arguments": ' -}}
{{- given if given is string else given | tojson -}}{{- '}</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"""
"""Calls of tools as Hermes and Qwen write them."""


def make_tiny_model(path: Path | str, *, hidden_size: int = 64, layers: int = 2, seed: int = 0) -> Path:
    """Write a model folder (config, safetensors in float32, tokenizer) that ``from_pretrained`` reads.

    The same arguments give the same weights. The caller's random state is unchanged.

    Args:
        path: the folder, created; files in it are overwritten.
        hidden_size: a multiple of 32, the size of an attention head.
        layers: number of transformer layers.
        seed: of the random weights.

    Returns:
        ``path``.

    Raises:
        ValueError: ``hidden_size`` is not a positive multiple of 32.
    """
    path = Path(path)
    if hidden_size < HEAD_SIZE or hidden_size % HEAD_SIZE:
        raise ValueError(f"hidden_size must be a positive multiple of {HEAD_SIZE}, not {hidden_size}")
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM
    from transformers.utils import logging as transformers_logging

    quiet: Any = transformers_logging  # has no types
    quiet.disable_progress_bar()
    tokenizer = _byte_tokenizer()
    heads = hidden_size // HEAD_SIZE
    vocabulary_size = len(tokenizer) + -len(tokenizer) % VOCABULARY_MULTIPLE
    config = Qwen2Config(
        vocab_size=vocabulary_size,
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=POSITIONS_MAX,
        tie_word_embeddings=False,
        bos_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    new_model: Any = Qwen2ForCausalLM  # transformers has no types here
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = new_model(config)
    path.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(path)
    model.save_pretrained(path)
    return path


def _byte_tokenizer() -> Any:
    """Id 0 ``<|endoftext|>`` (padding), 1 ``<|im_start|>``, 2 ``<|im_end|>`` (end of a turn), then the 256 bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    symbols = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    bytes_only = Tokenizer(models.BPE(vocab={symbol: i for i, symbol in enumerate(symbols)}, merges=[]))
    bytes_only.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_only.decoder = decoders.ByteLevel()
    new_tokenizer: Any = PreTrainedTokenizerFast  # transformers has no types here
    tokenizer = new_tokenizer(
        tokenizer_object=bytes_only,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
