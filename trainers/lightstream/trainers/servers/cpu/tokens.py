"""A checkpoint's tokenizer and chat template. Versions with the same files share one in memory."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from .checkpoint import load_tokenizer

__all__ = ["Tokens", "TokensOfFolders"]

TOKEN_TEXTS_KEPT = 100_000

NOT_OF_THE_TOKENIZER = ("config.json", "generation_config.json", "trainer.json")
"""Other small files of a checkpoint. All files but these and the weights belong to the tokenizer."""

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".index.json")


class Tokens:
    """A tokenizer, and what is asked of it again and again.

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


class TokensOfFolders:
    """Reads the tokenizers of checkpoints; one whose files are equal to those of a tokenizer in use is that one."""

    def __init__(self) -> None:
        self._in_use: WeakValueDictionary[str, Tokens] = WeakValueDictionary()

    def read(self, folder: Path) -> Tokens:
        """The tokenizer of a checkpoint.

        Raises:
            TrainingError: there is none, or it has no chat template.
        """
        digest = hashlib.blake2b()
        for path in sorted(folder.iterdir()):
            if path.is_file() and path.name not in NOT_OF_THE_TOKENIZER and not path.name.endswith(WEIGHTS):
                digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
                digest.update(path.read_bytes())
        tokens = self._in_use.get(digest.hexdigest())
        if tokens is None:
            tokens = self._in_use[digest.hexdigest()] = Tokens(load_tokenizer(folder))
        return tokens
