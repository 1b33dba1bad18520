"""Models that a user names are looked at before anything is started."""

from __future__ import annotations

import re
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr
from safetensors import SafetensorError, safe_open

from lightstream.schemas.errors import ServiceUnavailableError, SettingsError

__all__ = ["find_model", "find_served_model"]

CONFIG, TOKENIZER, WEIGHTS = "config.json", "tokenizer_config.json", "*.safetensors"
HUB_NAME = re.compile(r"\w[\w.-]*/[\w.-]+")
ANSWER_TIMEOUT_S = 10.0
NAMES_SHOWN_MAX = 5


def find_model(name: str) -> str:
    """The absolute path of a model's folder; a Hugging Face name as it is (fetching it is up to transformers).

    Raises:
        SettingsError: there is no such folder, or files of a model are missing or damaged in it.
    """
    folder = Path(name).expanduser()
    if not folder.exists() and HUB_NAME.fullmatch(name):
        return name
    if not folder.is_dir():
        raise SettingsError(
            f"--model is {name!r}, which is not a folder.",
            next_step="Name the folder of a Hugging Face model, or its name as org/model.",
        )
    missing = [pattern for pattern in (CONFIG, TOKENIZER, WEIGHTS) if not any(folder.glob(pattern))]
    if missing:
        raise SettingsError(
            f"--model is {name!r}, which is not the folder of a model: it has no {', no '.join(missing)}.",
            next_step=f"A model's folder holds {CONFIG}, {WEIGHTS} and a tokenizer with a chat template.",
        )
    for file in folder.glob(WEIGHTS):
        try:
            with safe_open(file, framework="numpy"):  # reads the header, and compares it with the file's length
                pass
        except SafetensorError as error:
            raise SettingsError(f"--model is {name!r}, whose {file.name} is damaged: {error}.") from error
    return str(folder.resolve())


def find_served_model(endpoint: str, name: str, api_key: SecretStr | None) -> str:
    """The name under which an OpenAI-compatible server serves the model: ``name``, or the first if that is empty.

    Raises:
        ServiceUnavailableError: the server does not answer, or not as such a server does.
        SettingsError: it serves no model of that name.
    """
    url = f"{endpoint.rstrip('/')}/models"
    headers = {} if api_key is None else {"authorization": f"Bearer {api_key.get_secret_value()}"}
    expected = "--endpoint is the address of an OpenAI-compatible server with its /v1, as http://127.0.0.1:8000/v1."
    try:
        answer = httpx.get(url, headers=headers, timeout=ANSWER_TIMEOUT_S)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ServiceUnavailableError(f"nothing answers at {url}: {error}.", next_step=expected) from error
    names = _names(answer)
    if not names:
        hint = "Its key belongs into LIGHTSTREAM_LLM_UPSTREAM_API_KEY. " if answer.status_code in (401, 403) else ""
        raise ServiceUnavailableError(
            f"{url} lists no models; it answered {answer.status_code}: {answer.text[:200]!r}.",
            next_step=hint + expected,
        )
    if name and name not in names:
        more = ", …" if len(names) > NAMES_SHOWN_MAX else ""
        raise SettingsError(
            f"{endpoint} does not serve --model {name!r}; it serves {', '.join(names[:NAMES_SHOWN_MAX])}{more}."
        )
    return name or names[0]


def _names(answer: httpx.Response) -> list[str]:
    try:
        body: Any = answer.json()
        return [str(model["id"]) for model in body["data"]] if answer.status_code == HTTPStatus.OK else []
    except (ValueError, KeyError, TypeError):
        return []
