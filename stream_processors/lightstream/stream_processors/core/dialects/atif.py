"""ATIF, the agent trajectory interchange format: steps whose ``metrics`` hold token ids and log-probabilities."""

from __future__ import annotations

from ._model import ReadCall
from ._values import is_list, is_map, set_logprobs, set_token_ids, text_or_none

__all__ = ["STEPS_MAX", "read_atif"]

STEPS_MAX = 100_000
"""Steps read of one trajectory; as many as an attempt of ours is tested with."""


def read_atif(body: object, place: str) -> list[ReadCall]:
    """One call per step that has response ids; ``choice_index`` is the step's position among these."""
    if not is_map(body) or not is_list(body.get("steps")):
        return []
    agent = body.get("agent")
    default = text_or_none(agent.get("model_name")) if is_map(agent) else None
    calls: list[ReadCall] = []
    for position, step in enumerate(body["steps"][:STEPS_MAX]):
        metrics = step.get("metrics") if is_map(step) else None
        if not is_map(metrics) or "completion_token_ids" not in metrics:
            continue
        at = f"{place}:steps[{position}].metrics"
        call = ReadCall("atif", choice_index=len(calls), model=text_or_none(step.get("model_name")) or default or "")
        set_token_ids(call, "prompt_token_ids", metrics.get("prompt_token_ids"), f"{at}.prompt_token_ids")
        set_token_ids(call, "response_token_ids", metrics["completion_token_ids"], f"{at}.completion_token_ids")
        set_logprobs(call, metrics.get("logprobs"), f"{at}.logprobs")
        calls.append(call)
    return calls
