"""A reference behind a URL: log-probabilities of given tokens, by vLLM's ``prompt_logprobs``."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast
from urllib.parse import urldefrag

import httpx
import numpy as np
import numpy.typing as npt

from lightstream.runtime.http.client import reason_of
from lightstream.schemas.errors import TrainingError

from ...rollouts.batch import BatchArrays

logger = logging.getLogger(__name__)

AT_ONCE = 8
TIMEOUT_S = 600.0
PAUSE_S = 1.0
PATIENCE_S = 1800.0
"""How long questions are repeated while the server is away."""
PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
REFUSED = frozenset({400, 413, 422})
"""Statuses by which a server refuses one row, such as one that is too long."""
KEY = "OPENAI_API_KEY"


class Teacher:
    """A model behind an OpenAI-compatible server that takes token ids and returns ``prompt_logprobs``, as vLLM does.

    It must have the tokenizer of the model that is trained. Its key is ``OPENAI_API_KEY``.

    Args:
        reference: URL with ``/v1``; ``#NAME`` behind it names the model where the server has several.
        patience_s: how long questions are repeated while the server is away or overloaded.
    """

    def __init__(self, reference: str, *, patience_s: float = PATIENCE_S) -> None:
        url, self._model = urldefrag(reference)
        self.url = url.rstrip("/")
        key = os.environ.get(KEY, "").strip()
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.Client(timeout=TIMEOUT_S, headers=headers)
        self._patience_s = patience_s
        self._away_since_s: float | None = None
        """Of all questions together, since the last answer."""

    def logprobs(self, arrays: BatchArrays) -> npt.NDArray[np.float32]:
        """Log-probability of each response token, float32 (sum R,), at temperature 1; 0 in rows that do not train.

        Raises:
            TrainingError: a row shows an image; or the server refuses a row, gives no log-probabilities, has another
                tokenizer, or is away for longer than the patience. Nothing has changed.
        """
        if any(arrays.images):
            raise TrainingError(
                f"the reference {self.url} is not shown images.", next_step="Name a folder with its weights."
            )
        ends = np.cumsum(arrays.lengths)
        rows = [arrays.input_ids[end - length : end].tolist() for end, length in zip(ends, arrays.lengths, strict=True)]
        trained = np.bincount(arrays.row_of_token, weights=arrays.response_mask, minlength=len(arrays)) > 0
        self._model = self._model or self._only_model()
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="teacher") as pool:
            asked = [pool.submit(self._of_row, row) if told else None for row, told in zip(rows, trained, strict=True)]
            try:
                parts = [
                    np.zeros(count, np.float32) if answer is None else answer.result()[len(row) - count :]
                    for row, answer, count in zip(rows, asked, arrays.response_lengths.tolist(), strict=True)
                ]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return np.concatenate(parts) if parts else np.zeros(0, np.float32)

    def _only_model(self) -> str:
        told = self._answered("GET", "/models", None)
        names = [str(model.get("id", "")) for model in told.get("data", []) if isinstance(model, dict)]
        if len(names) != 1:
            raise TrainingError(
                f"the reference {self.url} has {len(names)} models: {', '.join(names[:10])}.",
                next_step=f"Name one: reference='{self.url}#NAME'.",
            )
        return names[0]

    def _of_row(self, ids: Sequence[int]) -> npt.NDArray[np.float32]:
        body = {"model": self._model, "prompt": list(ids), "max_tokens": 1, "prompt_logprobs": 0}
        answer = self._answered("POST", "/completions", body)
        try:
            (choice,) = answer["choices"]
            of_tokens = list(zip(choice["prompt_logprobs"], ids, strict=True))[1:]  # the first one has no prompt
            values = np.array([0.0, *(told[str(token)]["logprob"] for told, token in of_tokens)], np.float32)
        except (KeyError, TypeError, ValueError) as error:
            raise TrainingError(
                f"the reference {self.url} gives no log-probabilities of the tokens it was sent ({error!r}).",
                next_step="Serve a model with the same tokenizer by vLLM, which has prompt_logprobs.",
            ) from error
        if not np.isfinite(values).all():
            raise TrainingError(f"the reference {self.url} gives a log-probability that is no finite number.")
        return values

    def _answered(self, method: str, path: str, body: Any) -> dict[str, Any]:
        pause_s = PAUSE_S
        while True:
            try:
                response = self._http.request(method, f"{self.url}{path}", json=body)
            except (httpx.LocalProtocolError, httpx.UnsupportedProtocol) as error:  # whose text may have the key
                raise TrainingError(
                    f"the reference {self.url} cannot be asked: its address or {KEY} is malformed."
                ) from error
            except httpx.TransportError as error:
                problem = f"does not answer: {reason_of(error)}"
            else:
                if response.is_success:
                    self._away_since_s = None
                    return self._read(response)
                problem = f"answers {response.status_code}: {response.text[:300]}"
                if response.status_code not in PASSING:
                    raise TrainingError(f"the reference {self.url} {problem}", next_step=_next_step(response))
            now_s = time.monotonic()
            self._away_since_s = self._away_since_s or now_s
            if now_s - self._away_since_s >= self._patience_s:
                raise TrainingError(
                    f"the reference {self.url} {problem}",
                    next_step="Start it again; the same command then goes on with this step.",
                )
            logger.warning("the reference %s %s; it is asked again in %.0f s", self.url, problem, pause_s)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 60.0)

    def _read(self, response: httpx.Response) -> dict[str, Any]:
        try:
            told = response.json()
        except json.JSONDecodeError as error:
            raise TrainingError(f"the reference {self.url} answers with no JSON: {response.text[:200]}") from error
        if not isinstance(told, dict):
            raise TrainingError(f"the reference {self.url} answers with no object: {response.text[:200]}")
        return cast("dict[str, Any]", told)


def _next_step(response: httpx.Response) -> str:
    if response.status_code in REFUSED:
        return "Serve it with a longer --max-model-len, or set prompt_tokens_max and response_tokens_max."
    return "Correct its address or key."
