"""Resources that agents receive, in Agent Lightning's shape, and filling in prompt templates."""

from __future__ import annotations

import importlib
import json
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, TypeAdapter

from ..distribution import install_hint
from .base import JsonModel, absent
from .rollout import AttemptedRollout, RolloutMode


def fill_in(template: str, engine: str, values: Mapping[str, Any]) -> str:
    """``template`` with ``values`` in its placeholders.

    Templates come from the store: f-strings and jinja are kept from Python's internals. POML runs in a separate
    process (some seconds) and may read files: take such templates from people you trust.

    Raises:
        KeyError: an f-string's placeholder has no value.
        ValueError: an f-string asks for a private attribute.
        NotImplementedError: the engine's package is not installed, or there is no such engine.
    """
    if engine == "f-string":
        return _Formatter().vformat(template, (), values)
    if engine == "jinja":
        sandbox = _package("jinja2.sandbox", engine)
        return str(sandbox.SandboxedEnvironment(keep_trailing_newline=True).from_string(template).render(**values))
    if engine == "poml":
        return _text(_package("poml", engine).poml(template, context=dict(values), chat=False))
    raise NotImplementedError(f"no template engine {engine!r}; there are f-string, jinja and poml")


class _Formatter(string.Formatter):
    """``str.format``, without the way from a value to everything in the process."""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if "._" in field_name:
            raise ValueError(f"the placeholder {field_name!r} asks for a private attribute")
        return super().get_field(field_name, args, kwargs)


def _package(name: str, engine: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise NotImplementedError(
            f"{engine} templates need the package {package}. Install it with {install_hint('prompts')}."
        ) from error


def _text(content: Any) -> str:
    """POML's output as text: a list of parts has its texts joined."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_text(part) for part in content)
    if isinstance(content, Mapping) and "content" in content:
        return _text(content["content"])
    return json.dumps(content, ensure_ascii=False)


class Resource(JsonModel):
    """Base of everything tunable that is handed to an agent."""

    resource_type: Any


class LLM(Resource):
    """A model behind an OpenAI-compatible endpoint.

    ``endpoint`` is the base URL (…/v1), ``model`` the name to request, ``sampling_parameters`` what to send along.
    """

    resource_type: Literal["llm"] = "llm"
    endpoint: str
    model: str
    api_key: str | None = None
    sampling_parameters: dict[str, Any] = {}

    def get_base_url(self, *args: Any, **kwargs: Any) -> str:
        """Base URL for an OpenAI client."""
        return self.endpoint


class ProxyLLM(LLM):
    """A model behind our LLM proxy: the base URL names rollout and attempt, so each call lands in its trajectory.

    Rollouts of mode ``val`` are given ``validation_sampling_parameters`` in place of ``sampling_parameters``, and those
    of mode ``test`` ``test_sampling_parameters``, where there are any.
    """

    resource_type: Literal["proxy_llm"] = "proxy_llm"  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]  # a tag per class
    validation_sampling_parameters: dict[str, Any] | None = Field(default=None, exclude_if=absent)
    test_sampling_parameters: dict[str, Any] | None = Field(default=None, exclude_if=absent)

    def for_mode(self, mode: RolloutMode | None) -> ProxyLLM:
        """The model as rollouts of a mode are given it."""
        others = {"val": self.validation_sampling_parameters, "test": self.test_sampling_parameters}
        parameters = others.get(mode or "train")
        return self if parameters is None else self.model_copy(update={"sampling_parameters": parameters})

    def get_base_url(self, rollout_id: str | None = None, attempt_id: str | None = None) -> str:
        """Base URL for the calls of one attempt.

        Raises:
            ValueError: only one of the two ids is given.
        """
        if rollout_id is None and attempt_id is None:
            return self.endpoint
        if not rollout_id or not attempt_id:
            raise ValueError("give both rollout_id and attempt_id, or neither")
        endpoint = self.endpoint.rstrip("/")
        end = endpoint.rfind("/v1")
        root, version = (endpoint[:end], endpoint[end:]) if end >= 0 else (endpoint, "")
        return f"{root}/rollout/{rollout_id}/attempt/{attempt_id}{version}"

    def with_attempted_rollout(self, rollout: AttemptedRollout) -> LLM:
        """The same model as a plain resource, its endpoint bound to one attempt."""
        return LLM(
            endpoint=self.get_base_url(rollout.rollout_id, rollout.attempt.attempt_id),
            model=self.model,
            sampling_parameters=self.sampling_parameters,
            api_key=self.api_key,
        )


class PromptTemplate(Resource):
    """A prompt with placeholders, in the language of one template engine."""

    resource_type: Literal["prompt_template"] = "prompt_template"
    template: str
    engine: Literal["jinja", "f-string", "poml"] = "f-string"

    def format(self, **values: Any) -> str:
        """Fill the template in.

        Raises:
            KeyError: an f-string's placeholder has no value.
            NotImplementedError: the engine's package is not installed.
        """
        return fill_in(self.template, self.engine, values)


class Artefact(Resource):
    """Something too large for a record (weights, an adapter, a data set), by its address.

    Attributes:
        url: a path or ``file:`` URL of a file or folder that its users can reach, or an ``http(s):`` URL of a file.
        sha256: 64 hexadecimal digits; of a folder as :func:`lightstream.runtime.artefacts.measure` says.
        size_bytes: of the file, or of all files in the folder together.
    """

    resource_type: Literal["artefact"] = "artefact"
    url: str = Field(min_length=1)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    size_bytes: int = Field(ge=0)

    @classmethod
    def of(cls, path: str | Path, url: str | None = None) -> Self:
        """The file or folder at ``path`` now; ``url`` where its users find it elsewhere. Reads all of it.

        Raises:
            ArtefactError: there is nothing, or something that is neither a file nor a folder of files.
        """
        from lightstream.runtime.artefacts import measure

        path = Path(path).absolute()
        digest, size_bytes = measure(path)
        return cls(url=str(path) if url is None else url, sha256=digest, size_bytes=size_bytes)

    def resolve(self, cache_dir: str | Path | None = None) -> Path:
        """Its path on this machine, verified: size and digest are the named ones. Blocks; reads all of it.

        Downloads over HTTP are kept in ``cache_dir`` (by default ``artefacts`` in the user's cache folder).

        Raises:
            ArtefactError: it cannot be fetched, or has changed.
        """
        from lightstream.runtime.artefacts import resolve

        return resolve(self.url, self.sha256, self.size_bytes, None if cache_dir is None else Path(cache_dir))


ResourceUnion: TypeAlias = Annotated[LLM | ProxyLLM | PromptTemplate | Artefact, Field(discriminator="resource_type")]
NamedResources: TypeAlias = dict[str, ResourceUnion]
resource_adapter: TypeAdapter[LLM | ProxyLLM | PromptTemplate | Artefact] = TypeAdapter(
    ResourceUnion, config=JsonModel.model_config
)


class ResourcesUpdate(JsonModel):
    """Named resources under one id (times in seconds since 1970). ``version`` counts the updates under that id.

    ``checkpoint_url`` says where data too large for a record is (weights, adapters); ``model`` under which name it is
    served, ``run_id`` whose training made it.
    """

    resources_id: str
    create_time: float
    update_time: float
    version: int
    resources: NamedResources
    model: str | None = Field(default=None, exclude_if=absent)
    checkpoint_url: str | None = Field(default=None, exclude_if=absent)
    run_id: str | None = Field(default=None, exclude_if=absent)
