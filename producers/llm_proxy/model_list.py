"""LiteLLM's ``model_list``: which back ends answer to which name. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

from lightstream.schemas.errors import SettingsError

OPENAI_COMPATIBLE = ("hosted_vllm", "vllm", "openai", "litellm_proxy")
"""LiteLLM's names of providers that speak OpenAI's interface: with a URL of their own they are asked directly, so that
token ids are captured from their raw answers, in streams too."""

FROM_ENVIRONMENT = "os.environ/"
"""LiteLLM's way to name a variable in place of a value."""

NOT_READ = frozenset(
    {
        "allowed_fails",
        "cooldown_time",
        "custom_llm_provider",
        "drop_params",
        "fallbacks",
        "max_parallel_requests",
        "max_retries",
        "mock_response",
        "num_retries",
        "order",
        "retry_policy",
        "rpm",
        "stream_timeout",
        "timeout",
        "tpm",
        "weight",
    }
)
"""Keys of ``litellm_params`` that LiteLLM's router reads and this proxy does not; refused rather than ignored."""


class ModelConfig(TypedDict):
    """One back end, as LiteLLM's configuration has it.

    ``litellm_params`` has ``model`` (``<provider>/<model>``), and may have ``api_base``, ``api_key`` and parameters
    that are sent where the agent gives none. ``model_info`` may say which ``resources_id`` and ``policy_version`` it
    serves; both are recorded with its calls unless its own answers say otherwise.
    """

    model_name: str
    litellm_params: dict[str, Any]
    model_info: NotRequired[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class BackEnd:
    """One server or provider.

    Attributes:
        name: what agents ask for.
        model: what it is asked for: the server's own name, or LiteLLM's model string where ``is_direct`` is false.
        is_direct: it speaks OpenAI's interface at ``api_base``; otherwise LiteLLM asks it.
        parameters: sent where the agent gives none.
        resources_id, policy_version: the weights it serves, where the list names them.
    """

    name: str
    model: str
    is_direct: bool
    api_base: str | None
    api_key: str | None
    parameters: Mapping[str, Any]
    resources_id: str | None
    policy_version: int | None


def back_ends_of(model_list: Sequence[Mapping[str, Any]]) -> list[BackEnd]:
    """The back ends of a list.

    Raises:
        SettingsError: an entry lacks its name or model, names an environment variable that is not set, or asks for
            what is not done here.
    """
    return [_back_end(index, entry) for index, entry in enumerate(model_list)]


def _back_end(index: int, entry: Mapping[str, Any]) -> BackEnd:
    name, params = entry.get("model_name"), entry.get("litellm_params")
    if not isinstance(name, str) or not name or not isinstance(params, Mapping):
        raise SettingsError(f"model_list[{index}] must have model_name and litellm_params, but is {dict(entry)!r}.")
    refused = sorted(NOT_READ & params.keys())
    if refused:
        raise SettingsError(
            f"model_list[{index}] ({name}) has {', '.join(refused)}, which this proxy does not read.",
            next_step="Retries are the proxy's num_retries, its timeout is LIGHTSTREAM_LLM_REQUEST_TIMEOUT_S.",
        )
    remaining = {key: _resolved(index, value) for key, value in params.items()}
    model = remaining.pop("model", None)
    if not isinstance(model, str) or not model:
        raise SettingsError(
            f"model_list[{index}] ({name}) names no model.",
            next_step="Give litellm_params a model, as in hosted_vllm/<name of the served model>.",
        )
    api_base = remaining.pop("api_base", None) or remaining.pop("base_url", None)
    provider, slash, served = model.partition("/")
    is_direct = bool(api_base) and (not slash or provider in OPENAI_COMPATIBLE)
    info = entry.get("model_info") or {}
    version = info.get("policy_version")
    return BackEnd(
        name=name,
        model=served if is_direct and slash else model,
        is_direct=is_direct,
        api_base=str(api_base).rstrip("/") if api_base else None,
        api_key=remaining.pop("api_key", None),
        parameters=remaining,
        resources_id=info.get("resources_id"),
        policy_version=version if isinstance(version, int) else None,
    )


def _resolved(index: int, value: Any) -> Any:
    if not isinstance(value, str) or not value.startswith(FROM_ENVIRONMENT):
        return value
    variable = value.removeprefix(FROM_ENVIRONMENT)
    if variable not in os.environ:
        raise SettingsError(f"model_list[{index}] takes its key from {variable}, which is not set.")
    return os.environ[variable]
