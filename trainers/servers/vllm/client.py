"""Asks one vLLM for a token, for log-probabilities, to read other weights. Each call waits for its answer."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any, Literal

from lightstream.runtime.http.client import send
from lightstream.schemas.errors import ServiceUnavailableError, TrainingError

SERVED_NAME = "policy"
"""The name by which vLLM itself knows the model, whatever its version."""

PROBE_IDS = tuple(range(5, 69))
"""Any text will do, if it is long enough for every change of the weights to show in its log-probabilities."""


class VllmClient:
    """A vLLM server.

    Args:
        url: without ``/v1``.
        timeout_s: how long an answer may take; reading weights is part of some.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._certificates = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts none: it is our child, without TLS

    def generates(self) -> bool:
        """Whether it makes a token now."""
        try:
            self._post("/v1/completions", {"model": SERVED_NAME, "prompt": list(PROBE_IDS[:1]), "max_tokens": 1})
        except (ServiceUnavailableError, TrainingError):
            return False
        return True

    def probe(self, model: str = SERVED_NAME) -> tuple[float, ...]:
        """Log-probabilities of a fixed text, one for each of its tokens but the first.

        Raises:
            ServiceUnavailableError: it does not answer.
            TrainingError: it answers, but not with these.
        """
        body = {"model": model, "prompt": list(PROBE_IDS), "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
        answer = self._post("/v1/completions", body)
        try:
            entries: list[Any] = answer["choices"][0]["prompt_logprobs"][1:]
            return tuple(float(e[str(t)]["logprob"]) for e, t in zip(entries, PROBE_IDS[1:], strict=True))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise TrainingError(
                f"vLLM at {self._url} gives no log-probabilities of a prompt: {str(answer)[:300]}",
                next_step="Lightstream is tested with vLLM 0.31.",
            ) from error

    def load_weights(self, folder: Path, version: int) -> None:
        """Replace the weights by the weights of a folder of the same architecture, and forget results of earlier ones.

        Raises:
            ServiceUnavailableError: it does not answer; it may have ended.
            TrainingError: it refuses them. Some of its weights may be the new ones.
        """
        self._post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}})
        self._post("/reset_prefix_cache", {})
        self._post("/update_weight_version", {"new_version": str(version)})

    def pause(self, mode: Literal["keep", "abort"]) -> None:
        """Have nothing sampled until :meth:`resume`; returns when the last tokens are on their way.

        Requests under way are kept, and read their prompts and tokens anew once they go on, or they are aborted.
        Those that come meanwhile wait.

        Raises:
            ServiceUnavailableError, TrainingError: as :meth:`load_weights`.
        """
        self._post(f"/pause?mode={mode}", {})

    def resume(self) -> None:
        """Go on.

        Raises:
            ServiceUnavailableError, TrainingError: as :meth:`load_weights`.
        """
        self._post("/resume", {})

    def load_adapter(self, name: str, folder: Path) -> None:
        """Serve an adapter under a name of its own: vLLM's prefix cache goes by that name.

        Raises:
            ServiceUnavailableError, TrainingError: as :meth:`load_weights`; other adapters are unchanged.
        """
        self._post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})

    def unload_adapter(self, name: str) -> None:
        """Forget an adapter.

        Raises:
            ServiceUnavailableError, TrainingError: as :meth:`load_weights`.
        """
        self._post("/v1/unload_lora_adapter", {"lora_name": name})

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        answer = send(
            "POST",
            f"{self._url}{path}",
            server=f"vLLM at {self._url}",
            next_step="Its log says why.",
            timeout_s=self._timeout_s,
            certificates=self._certificates,
            headers={"content-type": "application/json"},
            content=json.dumps(body).encode(),
        )
        if answer.is_error:
            raise TrainingError(
                f"vLLM at {self._url} refuses {path} with {answer.status_code}: {answer.text[:2000]}",
                next_step="Its log says why.",
            )
        try:
            return answer.json() if answer.content else {}
        except ValueError:
            return {}
