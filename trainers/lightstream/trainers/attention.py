"""Which attention of transformers a model is loaded with, by trainer and sampler alike."""

from __future__ import annotations

from typing import Any

__all__ = ["attention_of"]

_EAGER_ALONE = ("attn_logit_softcapping", "attn_logit_softcap")
"""Settings that transformers' ``sdpa`` drops in silence, and its ``eager`` applies (Gemma 2: arXiv:2408.00118, 2)."""


def attention_of(config: Any) -> str | None:
    """``eager`` where ``sdpa`` would leave something out; ``None``: what transformers takes by itself.

    By itself it takes ``sdpa``, and ``eager`` for classes that do not support that (attention sinks, for one).

    Args:
        config: of the model, as transformers loads it.
    """
    text = config.get_text_config()
    return "eager" if any(getattr(text, name, None) for name in _EAGER_ALONE) else None
