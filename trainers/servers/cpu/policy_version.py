"""The versions of the policy, or of several: which are known, which are in memory, which is the newest.

A version is *announced* (its record is on ``resources``), then *loaded*: the newest at once, any other when it is asked
for. Requests hold the version they use, so its weights stay as they are until the last of them is done; only then is
their memory given to another version. Versions that are adapters share their model, which is in memory once.
Everything that is read from a checkpoint belongs to its version: tokenizer, chat template, tokens that end a turn.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from lightstream.schemas.errors import TrainingError

from ...run.checkpoint import check_digest
from ..chat_api.version import PolicyVersion
from .adapters import SharedModel, base_of, carries_adapters, is_adapter
from .checkpoint import checkpoint_folder, end_of_turn_ids, load_model, overwrite_weights
from .tokens import TokensOfFolders
from .version_index import Announced, Key, VersionIndex

__all__ = ["NEWEST", "PolicyVersion", "Versions"]

logger = logging.getLogger(__name__)

NEWEST = "policy"
"""The name that always means the newest version that is loaded; adapters are asked for by their own."""


@dataclass(slots=True)
class Versions:
    """Registry of versions. Thread-safe; loading happens in the caller's thread, one at a time.

    Attributes:
        device, dtype: where and how weights are kept.
        kept: how many versions stay in memory, of all runs: those in use, the newest, and those that were asked for
            last; of adapters, so many of each policy.
        rank_max: the largest rank of an adapter.
        is_succeeded: calls of a version go on with a newer one of the same model, once that is loaded.
        is_catching_up: versions that were announced before us may not be known yet.
        on_change: called (from any thread) after a version was announced, loaded or failed.
    """

    device: torch.device
    dtype: torch.dtype
    kept: int
    rank_max: int = 256
    is_succeeded: bool = False
    is_catching_up: bool = False
    on_change: Callable[[], None] = lambda: None
    _index: VersionIndex = field(default_factory=VersionIndex)
    _loaded: dict[Key, PolicyVersion] = field(default_factory=dict[Key, PolicyVersion])
    _spare: list[PolicyVersion] = field(default_factory=list[PolicyVersion])
    _shared: dict[Path, SharedModel] = field(default_factory=dict[Path, SharedModel])
    _tokens: TokensOfFolders = field(default_factory=TokensOfFolders)
    _newest: Key | None = None
    _uses: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _loading: threading.Lock = field(default_factory=threading.Lock)

    def announce(
        self,
        name: str,
        number: int,
        checkpoint_url: str,
        resources_id: str = "",
        *,
        run_id: str | None = None,
        also_called: str = "",
    ) -> None:
        """Make a version known; a later announcement of the same name, by the same run, replaces it (loaded weights
        stay till then). Arguments are those of :meth:`VersionIndex.add`."""
        with self._lock:
            self._index.add(name, number, checkpoint_url, resources_id, run_id=run_id, also_called=also_called)
        self.on_change()

    def caught_up(self) -> None:
        """All that was announced before us is known."""
        self.is_catching_up = False
        self.on_change()

    @property
    def has_none(self) -> bool:
        """True if no version was ever announced, as far as that can be known."""
        return not self._index and not self.is_catching_up

    def load_newest(self) -> None:
        """Load the version that the last record announced, unless it is loaded. Failures are logged."""
        with self._lock:
            newest = self._index.last()
        for announced in newest:
            try:
                self.release(self._load(announced.key))
            except TrainingError as error:
                logger.error("%s cannot be served: %s", announced.name, error)

    def load(self, name: str) -> PolicyVersion:
        """Bring an announced version into memory if it is not there, and hold it as :meth:`acquire` does.

        Raises:
            KeyError: it was never announced.
            TrainingError: its checkpoint cannot be loaded, or several runs published that name; every other version
                is as before.
        """
        with self._lock:
            announced, refusal = self._index.find(name), self._index.refusal(name)
        if refusal is not None:
            raise TrainingError(f"{refusal}.", next_step="Give each run a served_model of its own, or none.")
        if announced is None:
            raise KeyError(name)
        return self._load(announced.key)

    def _load(self, key: Key) -> PolicyVersion:
        with self._loading:
            with self._lock:
                announced = self._index[key]
                self._select(key)
                held = self._hold(self._succeeding(key))
            if held is not None:
                return held
            try:
                version = self._read(announced)
            except TrainingError:
                self.on_change()
                raise
            with self._lock:
                replaced = self._loaded.pop(key, None)
                if replaced is not None:
                    self._retire(replaced)
                self._loaded[key] = version
                self._hold(version)
                self._select(key)
                self._evict()
                bases = {loaded.base for loaded in self._loaded.values()}
                self._shared = {folder: model for folder, model in self._shared.items() if folder in bases}
        self.on_change()
        return version

    def acquire(self, name: str) -> PolicyVersion | None:
        """Hold a loaded version (``policy`` or empty: the newest), or ``None`` if it is not in memory."""
        with self._lock:
            announced = self._index.find(name)
            if announced is not None:
                return self._hold(self._succeeding(announced.key))
            if name in (NEWEST, "") and self._newest is not None:
                return self._hold(self._loaded.get(self._newest))
            return None

    def release(self, version: PolicyVersion) -> None:
        """Let go of the version that :meth:`acquire` gave; its weights may change from now on."""
        with self._lock:
            version.users -= 1
            self._evict()

    def succeed(self, version: PolicyVersion) -> PolicyVersion | None:
        """Hold the version that goes on with another's calls in its place; ``None``, and nothing changes, without one.

        One of another architecture or tokenizer does not: prompts that fit the one may not fit the other.
        """
        with self._lock:
            newer = self._latest(version.key) if self.is_succeeded else None
            if newer is None or newer is version or newer.architecture != version.architecture:
                return None
            if newer.tokens is not version.tokens:
                return None
            self._hold(newer)
            self.release(version)
            return newer

    def is_announced(self, name: str) -> bool:
        """True if ``name`` can be loaded on demand."""
        with self._lock:
            return self._index.find(name) is not None

    def refusal(self, name: str) -> str | None:
        """Say why ``name`` means no version although it was published; ``None`` where it does, or was not."""
        with self._lock:
            return self._index.refusal(name)

    def names(self) -> list[str]:
        """``policy``, unless there are adapters alone, and every version in memory, the newest first."""
        with self._lock:
            ordered = sorted(self._loaded, key=lambda key: self._index[key].order, reverse=True)
            names = [name if self._index.refusal(name) is None else f"{run_id}/{name}" for run_id, name in ordered]
            return [NEWEST, *names] if self._newest in self._loaded else names

    def _hold(self, version: PolicyVersion | None) -> PolicyVersion | None:
        if version is not None:
            self._uses += 1
            version.users, version.last_use = version.users + 1, self._uses
        return version

    def _succeeding(self, key: Key) -> PolicyVersion | None:
        """The loaded version that answers calls of that one: itself, or a newer one where calls go on with it."""
        newer = self._latest(key) if self.is_succeeded else None
        version = newer or self._loaded.get(key)
        return version if version is not None and self._is_current(version) else None

    def _latest(self, key: Key) -> PolicyVersion | None:
        """The newest loaded version of the model that ``key`` is a version of, not older than it."""
        run_id, name = key
        policy, order = (run_id, name.rpartition("@")[0]), self._index[key].order
        later = {k: self._index[k].order for k, version in self._loaded.items() if version.policy == policy}
        later = {k: o for k, o in later.items() if o >= order and self._is_current(self._loaded[k])}
        return self._loaded[max(later, key=later.__getitem__)] if later else None

    def _is_current(self, version: PolicyVersion) -> bool:
        """True if a version's weights are those announced last under its name."""
        return version.checkpoint_url == self._index[version.key].checkpoint_url

    def _select(self, key: Key) -> None:
        """Make a version the newest if it is loaded and was announced after the present one."""
        if key not in self._loaded or self._loaded[key].is_adapter:
            return
        if self._newest not in self._loaded or self._index[key].order >= self._index[self._newest].order:
            self._newest = key

    def _read(self, announced: Announced) -> PolicyVersion:
        url = announced.checkpoint_url
        of_adapter = Path(url.removeprefix("file://"))
        check_digest(of_adapter)
        adapts = is_adapter(of_adapter)
        folder = base_of(of_adapter) if adapts else checkpoint_folder(url)
        architecture = (folder / "config.json").read_text("utf-8")
        version = PolicyVersion(announced.name, announced.number, url, announced.resources_id, announced.run_id)
        version.architecture, version.is_adapter = architecture, adapts
        version.tokens = self._tokens.read(folder)
        if adapts or carries_adapters(folder):
            version.base = folder.resolve()
            shared = self._shared_model(version.base)
            version.model = shared.read(of_adapter, rank_max=self.rank_max) if adapts else shared.plain()
        else:
            version.model = self._own_model(folder, architecture)
        version.end_ids = end_of_turn_ids(folder, version.tokens.tokenizer)
        version.positions_max = int(version.model.config.get_text_config().max_position_embeddings)
        return version

    def _shared_model(self, folder: Path) -> SharedModel:
        if folder not in self._shared:
            self._shared[folder] = SharedModel(load_model(folder, self.device, self.dtype))
        return self._shared[folder]

    def _own_model(self, folder: Path, architecture: str) -> Any:
        with self._lock:
            fitting = [spare for spare in self._spare if spare.architecture == architecture]
            self._spare.clear()
        if fitting:
            overwrite_weights(fitting[0].model, folder)
            return fitting[0].model
        return load_model(folder, self.device, self.dtype)

    def _evict(self) -> None:
        """Give up what is beyond :attr:`kept`, the least recently used first: of all models, and of each policy's
        adapters."""
        kinds: dict[Key | None, list[PolicyVersion]] = {}
        for version in self._loaded.values():
            kinds.setdefault(version.policy if version.is_adapter else None, []).append(version)
        for versions in kinds.values():
            unused = [v for v in versions if v.users == 0 and v.key != self._newest]
            unused.sort(key=lambda v: v.last_use)
            for version in unused[: max(0, len(versions) - self.kept)]:
                self._retire(self._loaded.pop(version.key))

    def _retire(self, version: PolicyVersion) -> None:
        if version.users == 0 and not self._spare and version.base is None:
            self._spare.append(version)
