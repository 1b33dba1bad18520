"""Seeds for calls that have none of their own: from the run's seed, the rollout's place, and the request."""

from __future__ import annotations

import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .call import Caller

ATTEMPTS_REMEMBERED_MAX = 100_000
"""Beyond, the attempt that has been silent for longest is forgotten; what it asks again counts as asked for the first
time."""

_PLACE = re.compile(r"(?:^|-)((?:s\d+(?:r\d+)?-g\d+|v\d+-g\d+|x\d+)-\d+)\Z")
"""The end of a rollout's id that a trainer made: step, group and member, behind the run's name."""
_ATTEMPT = re.compile(r"-a(\d+)-.*")
"""What an attempt's id has behind the rollout's: its number, and something random."""

_NOT_ASKED = frozenset({"model", "seed", "stream", "stream_options", "user", "metadata", "safety_identifier", "store"})
"""Parts of a request on which the answer does not depend. The model's name has the run's and the version in it."""
_IDS = frozenset({"id", "tool_call_id", "call_id"})
"""Keys of ids that model servers draw at random: of calls of tools."""


@dataclass(frozen=True, slots=True)
class DrawnSeed:
    """A call's seed (63 bits), and its number among the attempt's equal requests, to be given back if it fails."""

    value: int
    attempt: tuple[str, str]
    request: bytes
    number: int


class _Numbers:
    """Numbers of an attempt's equal requests."""

    def __init__(self) -> None:
        self._in_use: set[int] = set()
        self._given_back: set[int] = set()

    def take(self, *, is_retry: bool) -> int:
        """The next number. A retry has that of a request that failed, else of the last one: its answer was lost."""
        if is_retry and self._given_back:
            number = min(self._given_back)
        elif is_retry and self._in_use:
            number = max(self._in_use)
        else:
            number = next(n for n in range(len(self._in_use) + 1) if n not in self._in_use)
        self._in_use.add(number)
        self._given_back.discard(number)
        return number

    def give_back(self, number: int) -> None:
        if number in self._in_use:
            self._in_use.discard(number)
            self._given_back.add(number)


class CallSeeds:
    """Draws seeds. Not thread-safe.

    A call's seed follows from the run's seed, the step, group and member of its rollout, the number of the attempt, a
    hash of the request, and how many equal requests of the attempt have an answer or wait for one. So neither names,
    nor the order in which calls arrive, nor what other calls a proxy has seen, change it. A rollout whose id no trainer
    made has its whole id for its place.
    """

    def __init__(self) -> None:
        self._requests: OrderedDict[tuple[str, str], dict[bytes, _Numbers]] = OrderedDict()

    def draw(
        self, run_seed: int, caller: Caller, request: Mapping[str, Any], *, is_retry: bool = False
    ) -> DrawnSeed | None:
        """The seed of a request; ``None`` for a caller without a rollout.

        Args:
            run_seed: the run's.
            caller: whose request it is.
            request: as the model server is to have it.
            is_retry: the client made the request before, and had no answer: it has the same seed.
        """
        if caller.rollout_id is None or caller.attempt_id is None:
            return None
        attempt = caller.rollout_id, caller.attempt_id
        requests = self._requests.setdefault(attempt, {})
        self._requests.move_to_end(attempt)
        if len(self._requests) > ATTEMPTS_REMEMBERED_MAX:
            self._requests.popitem(last=False)
        request_hash = _hash_of(request)
        number = requests.setdefault(request_hash, _Numbers()).take(is_retry=is_retry)
        place = f"{run_seed}:{_place(caller.rollout_id)}:{_number_of_attempt(attempt)}:{request_hash.hex()}:{number}"
        digest = hashlib.sha256(place.encode()).digest()
        return DrawnSeed(int.from_bytes(digest[:8], "big") >> 1, attempt, request_hash, number)

    def give_back(self, drawn: DrawnSeed) -> None:
        """The call failed: when the agent asks again, it has this seed."""
        numbers = self._requests.get(drawn.attempt, {}).get(drawn.request)
        if numbers is not None:
            numbers.give_back(drawn.number)


def _place(rollout_id: str) -> str:
    found = _PLACE.search(rollout_id)
    return rollout_id if found is None else found[1]


def _number_of_attempt(attempt: tuple[str, str]) -> str:
    """The number in the attempt's id; all of the id where it has none."""
    rollout_id, attempt_id = attempt
    found = _ATTEMPT.fullmatch(attempt_id.removeprefix(rollout_id))
    return attempt_id if found is None else found[1]


def _hash_of(request: Mapping[str, Any]) -> bytes:
    """SHA-256 of what is asked; ids that were drawn at random count by the order in which they appear."""
    names: dict[str, str] = {}

    def normalized(value: Any, key: str = "") -> Any:
        if isinstance(value, Mapping):
            return {name: normalized(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [normalized(item) for item in value]
        return names.setdefault(value, f"#{len(names)}") if key in _IDS and isinstance(value, str) else value

    fields = normalized({name: value for name, value in request.items() if name not in _NOT_ASKED})
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).digest()
