"""A checkpoint's tokenizer and chat template. Versions with the same files share one in memory."""

from __future__ import annotations

import hashlib
from pathlib import Path
from weakref import WeakValueDictionary

from ..chat_api.version import Tokens
from .checkpoint import load_tokenizer

NOT_OF_THE_TOKENIZER = ("config.json", "generation_config.json", "trainer.json")
"""Other small files of a checkpoint. All files but these and the weights belong to the tokenizer."""

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".index.json")


class TokensOfFolders:
    """Reads the tokenizers of checkpoints; equal files share the tokenizer in use."""

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
