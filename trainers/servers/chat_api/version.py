"""A version of the policy, as an answering server sees it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

TOKEN_TEXTS_KEPT = 100_000


class Tokens:
    """A tokenizer, with its frequent results kept.

    Attributes:
        tokenizer: of transformers, with a chat template.
        characters_max: length of its longest token.
        text_of: the text of one token, special ones included.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.characters_max = max(map(len, tokenizer.get_vocab()))
        decode = tokenizer.backend_tokenizer.decode
        self.text_of = lru_cache(TOKEN_TEXTS_KEPT)(lambda token: str(decode([token], skip_special_tokens=False)))


@dataclass(slots=True, eq=False)
class PolicyVersion:
    """One version of the weights.

    Attributes:
        name: what it is served as, ``<run>@<number>``; an adapter, as ``<run>/<its policy>@<number>``.
        number: the version, as in ``resources``.
        checkpoint_url: the folder of its weights.
        resources_id: of the record that announced it, or empty.
        run_id: whose it is, or empty.
        model: the loaded model.
        tokens: its tokenizer.
        architecture: text of its ``config.json``; equal texts mean that weights fit in place.
        end_ids: tokens that end a turn.
        positions_max: most tokens of prompt and answer together.
        users: jobs that hold it now.
        last_use: the larger, the later it was asked for.
        base: folder of the model that it shares with other versions; ``None``: its model is its own.
        is_adapter: whether it is an adapter of that model.
    """

    name: str
    number: int
    checkpoint_url: str
    resources_id: str = ""
    run_id: str = ""
    model: Any = None
    tokens: Tokens | None = None
    architecture: str = ""
    end_ids: frozenset[int] = frozenset()
    positions_max: int = 0
    users: int = 0
    last_use: int = 0
    base: Path | None = None
    is_adapter: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """The identity among all others."""
        return self.run_id, self.name

    @property
    def policy(self) -> tuple[str, str]:
        """Its run, and its name without the number."""
        return self.run_id, self.name.rpartition("@")[0]
