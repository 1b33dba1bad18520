"""Which attention of transformers a model is loaded with, by trainer and sampler alike."""

from __future__ import annotations

from typing import Any

_EAGER_ALONE = ("attn_logit_softcapping", "attn_logit_softcap")
"""Settings that transformers' ``sdpa`` drops in silence, and its ``eager`` applies (Gemma 2: arXiv:2408.00118, 2)."""


def attention_of(config: Any) -> str | None:
    """``eager`` where ``sdpa`` would leave something out; ``None``: transformers' own choice.

    By itself it takes ``sdpa`` where the model's class has that (attention sinks, for one, have not).

    Args:
        config: of the model, as transformers loads it.
    """
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    text = config.get_text_config()
    kind: Any = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    has_sdpa = getattr(kind, "_supports_sdpa", True)
    return "eager" if not has_sdpa or any(getattr(text, name, None) for name in _EAGER_ALONE) else None
