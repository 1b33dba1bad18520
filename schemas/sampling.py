"""Parameters of a request that decide how its tokens are drawn from the model's distribution."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

NEUTRAL_SAMPLING: Mapping[str, tuple[Any, ...]] = {
    "top_p": (1, None),
    "top_k": (0, -1, None),
    "min_p": (0, None),
    "typical_p": (1, None),
    "frequency_penalty": (0, None),
    "presence_penalty": (0, None),
    "repetition_penalty": (1, None),
    "min_tokens": (0, None),
    "ignore_eos": (False, None),
    "logit_bias": ({}, None),
    "bad_words": ([], None),
    "allowed_token_ids": (None,),
    "use_beam_search": (False, None),
    "response_format": ({"type": "text"}, None),
    "tool_choice": ("auto", "none", None),
    "structured_outputs": (None,),
    "guided_json": (None,),
    "guided_regex": (None,),
    "guided_choice": (None,),
    "guided_grammar": (None,),
}
"""Parameters beside the temperature that change the distribution (OpenAI's and vLLM's) -> values that do not."""

NOT_RECORDED = "null"
"""``TripletRecord.sampling_json`` of a call whose request nobody recorded."""


def sampling_of_request(request: Mapping[str, Any]) -> str:
    """The parameters of a request that decide how tokens are drawn, as JSON, without parameters that it leaves out."""
    names = ("temperature", *NEUTRAL_SAMPLING)
    return json.dumps({name: request[name] for name in names if name in request}, ensure_ascii=False)


def read_sampling(sampling_json: str) -> dict[str, Any] | None:
    """The parameters of :func:`sampling_of_request`; ``None``: the text has none."""
    try:
        found: Any = json.loads(sampling_json)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def temperature_of(sampling: Mapping[str, Any]) -> float:
    """The temperature, which is 1 where the request has none; NaN where it is no number."""
    value = sampling.get("temperature")
    if value is None:
        return 1.0
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def changed_sampling(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters beside the temperature whose values change the distribution."""
    return {
        name: sampling[name]
        for name, neutral in NEUTRAL_SAMPLING.items()
        if name in sampling and sampling[name] not in neutral
    }
