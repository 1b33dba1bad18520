"""What a dialect makes of a span."""

from __future__ import annotations

from dataclasses import dataclass

from lightstream.schemas.records import DropReason, PolicyVersionRun

__all__ = ["ReadCall"]


@dataclass(slots=True)
class ReadCall:
    """One LLM call (one choice of it) as one span describes it.

    ``prompt_token_ids`` and ``response_token_ids`` are int32, ``response_logprobs`` float32, packed little-endian;
    ``None`` where the span does not say. They are as found: the assembler checks that they fit together.

    Attributes:
        dialect: name of the reader.
        problem: a value was there but unusable (say, text among the token ids); ``detail`` says which and how.
        is_request: it is the request that a library made for the call of the LLM span around it, if there is one: the
            two are one call, though the library may give it an id of its own.
        policy_version_runs: which version sampled which tokens, where there were several.
        places: field -> where in the span it was found (an attribute's name, or a path in its JSON); ``None`` for none.
    """

    dialect: str
    response_id: str | None = None
    choice_index: int = 0
    model: str = ""
    policy_version: int | None = None
    prompt_token_ids: bytes | None = None
    response_token_ids: bytes | None = None
    response_logprobs: bytes | None = None
    finish_reason: str | None = None
    failure: str | None = None
    problem: DropReason | None = None
    detail: str = ""
    is_request: bool = False
    places: dict[str, str] | None = None
    policy_version_runs: tuple[PolicyVersionRun, ...] = ()

    def found(self, field: str, place: str) -> None:
        """Note where in the span ``field`` was found."""
        if self.places is None:
            self.places = {}
        self.places[field] = place

    def place_of(self, field: str) -> str:
        """Where in the span ``field`` was found; the dialect's name where that says it all."""
        return (self.places or {}).get(field, self.dialect)

    @property
    def has_tokens(self) -> bool:
        return self.prompt_token_ids is not None and self.response_token_ids is not None

    @property
    def names_a_call(self) -> bool:
        """It has a response id or tokens (good or bad); a span without may belong to no call at all."""
        return self.response_id is not None or self.response_token_ids is not None or self.problem is not None
