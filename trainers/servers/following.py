"""The servers that sample for the agents, as a training sees them: which versions they serve, and where."""

from __future__ import annotations

import ssl
import time
import urllib.parse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lightstream.runtime.http.client import send
from lightstream.runtime.http.own_tokens import token_of
from lightstream.runtime.services import discover, find
from lightstream.runtime.settings import Settings
from lightstream.runtime.tls import client_context
from lightstream.schemas.errors import ServiceUnavailableError, TrainingError
from lightstream.schemas.records import ResourcesRecord

from ..run.progress import Progress

if TYPE_CHECKING:
    import httpx

SERVED_TIMEOUT_S = 120.0
"""A large model takes a minute to load."""

SAY_AFTER_S = 5.0
ANSWER_TIMEOUT_S = 10.0
LOOK_S = 0.1
FINAL_CODES = ("version_unusable", "model_refused")
"""Codes of the policy server and of vLLM's front for a model that no waiting will bring."""

LOAD_TIMEOUT_S = 120.0
"""For one request: a version that is not in memory is loaded meanwhile."""
UP = "Start everything with `lightstream up --policy`."
URL_SETTING = "LIGHTSTREAM_LLM_UPSTREAM_URL"


class NoServers:
    """Nobody samples: the rollouts are recorded ones."""

    address = "http://127.0.0.1:9"

    def load(self, resources: ResourcesRecord) -> float:
        """Nothing to wait for."""
        return 0.0

    def pause(self) -> None:
        """Nothing to pause."""

    def resume(self) -> None:
        """Nothing to go on with."""

    def version(self) -> int | None:
        """None is served."""
        return None


class FollowingServers:
    """Servers that follow the topic ``resources`` themselves, as the policy server does, behind the proxy.

    They serve several versions by name, and a call that is under way keeps its own: there is nothing to pause.
    """

    def __init__(self, settings: Settings, progress: Progress) -> None:
        self._settings = settings
        self._progress = progress
        self._models: set[str] = set()

    @property
    def address(self) -> str:
        """The proxy's.

        Raises:
            ServiceUnavailableError: none runs.
        """
        return (self._settings.proxy_url or discover(self._settings, "proxy").address).rstrip("/")

    def load(self, resources: ResourcesRecord) -> float:
        """Wait until they list the version; returns the seconds.

        Raises:
            ServiceUnavailableError: they do not list it within two minutes.
            TrainingError: they say why they cannot serve it: the checkpoint is gone, or another run has its name.
        """
        names = [*([resources.model] if resources.model else []), *resources.adapters]
        self._models = {name.rpartition("@")[0] for name in names}
        return sum(wait_until_served(self._settings, name, self._progress) for name in names)

    def pause(self) -> None:
        """Nothing to do: see the class."""

    def resume(self) -> None:
        """Nothing to do: see the class."""

    def version(self) -> int | None:
        """The newest version of the run that they list; ``None`` if they list none, or cannot be seen from here.

        Raises:
            ServiceUnavailableError: they do not answer.
        """
        server = None if self._settings.proxy_url is not None else _model_server(self._settings)
        names = (None if server is None else server.models()) or []
        found = (name.rpartition("@") for name in names)
        return max((int(v) for model, _, v in found if v.isdecimal() and model in self._models), default=None)


@dataclass(frozen=True, slots=True)
class _ModelServer:
    """The server at which the proxy's calls end.

    Attributes:
        name: as a person knows it.
        url: with ``/v1``.
        api_key: sent as a bearer token; empty for none.
        next_step: what to do where it does not serve the model.
        certificates: what it is checked with, where it speaks TLS.
    """

    name: str
    url: str
    api_key: str
    next_step: str
    certificates: ssl.SSLContext

    def models(self) -> list[str] | None:
        """Names of the models it lists; ``None`` if it has no such list.

        Raises:
            ServiceUnavailableError: it does not answer.
        """
        answer = self._get("models", ANSWER_TIMEOUT_S)
        if answer.is_error:
            return None
        try:
            return [str(model["id"]) for model in answer.json()["data"]]
        except (ValueError, KeyError, TypeError):
            return None

    def load(self, name: str) -> str:
        """Ask for one model, which the policy server loads then.

        Returns:
            Empty where it is served, else what the server says.

        Raises:
            ServiceUnavailableError: it does not answer.
            TrainingError: it knows the model and cannot serve it: waiting changes nothing.
        """
        answer = self._get(f"models/{urllib.parse.quote(name)}", LOAD_TIMEOUT_S)
        if answer.is_success:
            return "" if _is_json(answer) else "no JSON"
        error = _error_in(answer)
        message = str(error.get("message", f"{answer.status_code} {answer.reason_phrase}"))
        if error.get("code") in FINAL_CODES:
            raise TrainingError(f"{self.name}: {message}.", next_step=self.next_step)
        return message

    def _get(self, path: str, timeout_s: float) -> httpx.Response:
        return send(
            "GET",
            f"{self.url}/{path}",
            server=f"{self.name} at {self.url}",
            next_step=self.next_step,
            timeout_s=timeout_s,
            certificates=self.certificates,
            headers={"authorization": f"Bearer {self.api_key}"} if self.api_key else None,
        )


def _is_json(answer: httpx.Response) -> bool:
    try:
        answer.json()
    except ValueError:
        return False
    return True


def _error_in(answer: httpx.Response) -> dict[str, Any]:
    """The error in an answer of OpenAI's shape."""
    try:
        error = answer.json()["error"]
    except (ValueError, KeyError, TypeError):
        return {}
    return error if isinstance(error, dict) else {}


def check_proxy(settings: Settings, next_step: str = "Start `lightstream up`.") -> None:
    """Refuse to train where no version of the policy could say where to call it.

    Raises:
        ServiceUnavailableError: no proxy of this data folder runs, and the settings name none.
    """
    if settings.proxy_url is None and find(settings, "proxy") is None:
        what = f"no LLM proxy runs with the data folder {settings.data_dir}."
        raise ServiceUnavailableError(what, next_step=next_step)


def check_model_server(settings: Settings) -> None:
    """Refuse to train where it is known that nobody would answer the agent's calls.

    Raises:
        ServiceUnavailableError: there is no proxy, or behind it neither a policy server nor another that answers.
    """
    if settings.proxy_url is not None:
        return  # elsewhere: what is behind it cannot be seen from here
    check_proxy(settings, UP)
    server = _model_server(settings)
    if server is not None:
        server.models()
    elif settings.llm_backend == "openai":
        raise ServiceUnavailableError(
            f"no policy server runs with the data folder {settings.data_dir}: nobody would answer the agent's calls.",
            next_step=f"{UP} For a model server of your own, set {URL_SETTING}.",
        )


def check_proxy_alone(settings: Settings) -> None:
    """Refuse to start model servers of a training's own where the agent's calls would not come to them.

    Raises:
        ServiceUnavailableError: no proxy of this data folder runs, or it forwards to another server.
    """
    check_proxy(settings)
    if settings.llm_upstream_url or settings.llm_backend != "openai":
        raise ServiceUnavailableError(
            "the LLM proxy forwards to a model server that VERL(servers=...) did not start.",
            next_step=f"Unset {URL_SETTING} and LIGHTSTREAM_LLM_BACKEND, or leave servers out.",
        )
    policy = find(settings, "policy")
    if policy is not None:
        raise ServiceUnavailableError(
            f"a policy server (process {policy.pid}) runs with the data folder {settings.data_dir}, "
            "and VERL(servers=...) would start another.",
            next_step="Stop it, or leave servers out.",
        )


def wait_until_served(settings: Settings, model: str, progress: Progress) -> float:
    """Wait until the model server lists ``model``, or loads it when asked for it by name.

    One that keeps no list, or cannot be seen from here, is trusted.

    Returns:
        Seconds waited.

    Raises:
        ServiceUnavailableError: it does not list the model within two minutes.
        TrainingError: it says why it cannot serve it.
    """
    started = time.monotonic()
    served_name, reported = settings.llm_model or model, False
    while True:
        server = None if settings.proxy_url is not None else _model_server(settings)
        if server is None:
            return time.monotonic() - started
        problem = ""
        try:
            names = server.models()
            if names is not None and served_name not in names and not server.load(served_name):
                names = [served_name]
        except ServiceUnavailableError as error:  # it may be starting again
            names, problem = [], error.message
        waited = time.monotonic() - started
        if names is None or served_name in names:
            return waited
        problem = problem or f"{server.name} at {server.url} lists: {', '.join(names) or 'no model'}."
        if waited > SERVED_TIMEOUT_S:
            raise ServiceUnavailableError(
                f"{served_name!r} is not served within {SERVED_TIMEOUT_S:g} s: {problem}", next_step=server.next_step
            )
        if waited > SAY_AFTER_S and not reported:
            progress.say(f"Waiting until {served_name!r} is served: {problem}")
            reported = True
        time.sleep(LOOK_S)


def _model_server(settings: Settings) -> _ModelServer | None:
    """The server that the proxy forwards to; ``None`` for providers that LiteLLM reaches, or if none is known."""
    if settings.llm_backend != "openai":
        return None
    if settings.llm_upstream_url:
        key = settings.llm_upstream_api_key
        return _ModelServer(
            "the model server",
            settings.llm_upstream_url.rstrip("/"),
            "" if key is None else key.get_secret_value(),
            "It must serve each published version as `<model>@<version>`, as the policy server does: unset "
            f"{URL_SETTING} and start `lightstream up --policy`.",
            client_context(settings),
        )
    policy = find(settings, "policy")
    if policy is None:
        return None
    return _ModelServer(
        "the policy server",
        f"{policy.address}/v1",
        token_of(settings, "policy_token") or "",
        f"Its log says why: {settings.data_dir}/logs/policy.log.",
        client_context(settings),
    )
