"""The versions of the policy, or of several: which are known, which are in memory, which is the newest.

A version is *announced* (its record is on ``resources``), then *loaded*. Requests hold the version they use, so its
weights stay as they are until the last of them is done; only then is their memory given to a newer version. Versions
that are adapters share their model, which is in memory once.
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

from .adapters import SharedModel, base_of, carries_adapters, is_adapter
from .checkpoint import checkpoint_folder, end_of_turn_ids, load_model, load_tokenizer, overwrite_weights

__all__ = ["NEWEST", "PolicyVersion", "Versions"]

logger = logging.getLogger(__name__)

NEWEST = "policy"
"""The name that always means the newest version that is loaded; adapters are asked for by their own."""


@dataclass(slots=True, eq=False)
class PolicyVersion:
    """One version of the weights.

    Attributes:
        name: what it is served as, ``policy@<number>``; an adapter, as ``<its policy>@<number>``.
        number: the version, as in ``resources``.
        checkpoint_url: the folder of its weights.
        resources_id: of the record that announced it, or empty.
        model: the loaded model.
        architecture: text of its ``config.json``; equal texts mean that weights fit in place.
        end_ids: tokens that end a turn.
        positions_max: most tokens of prompt and answer together.
        users: jobs that hold it now.
        base: folder of the model that it shares with other versions; ``None``: its model is its own.
        is_adapter: whether it is an adapter of that model.
    """

    name: str
    number: int
    checkpoint_url: str
    resources_id: str = ""
    model: Any = None
    architecture: str = ""
    end_ids: frozenset[int] = frozenset()
    positions_max: int = 0
    users: int = 0
    base: Path | None = None
    is_adapter: bool = False

    @property
    def policy(self) -> str:
        """The name without the number."""
        return self.name.rpartition("@")[0]


@dataclass(slots=True)
class _Announced:
    number: int
    checkpoint_url: str
    resources_id: str
    order: int


@dataclass(slots=True)
class Versions:
    """Registry of versions. Thread-safe; loading happens in the caller's thread, one at a time.

    Attributes:
        device, dtype: where and how weights are kept.
        kept: how many versions stay in memory, the newest ones and those in use; of adapters, so many of each policy.
        rank_max: the largest rank of an adapter.
        is_succeeded: calls of a version go on with a newer one of the same model, once that is loaded.
        tokenizer: of the first version loaded; all versions share it. Its longest token has
            ``token_characters_max`` characters.
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
    tokenizer: Any = None
    token_characters_max: int = 1
    _announced: dict[str, _Announced] = field(default_factory=dict[str, _Announced])
    _loaded: dict[str, PolicyVersion] = field(default_factory=dict[str, PolicyVersion])
    _spare: list[PolicyVersion] = field(default_factory=list[PolicyVersion])
    _shared: dict[Path, SharedModel] = field(default_factory=dict[Path, SharedModel])
    _newest: str = ""
    _announcements: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _loading: threading.Lock = field(default_factory=threading.Lock)

    def announce(self, name: str, number: int, checkpoint_url: str, resources_id: str = "") -> None:
        """Make a version known; a later announcement of the same name replaces it (loaded weights stay till then)."""
        with self._lock:
            self._announcements += 1
            self._announced[name] = _Announced(number, checkpoint_url, resources_id, self._announcements)
        self.on_change()

    def caught_up(self) -> None:
        """All that was announced before us is known."""
        self.is_catching_up = False
        self.on_change()

    @property
    def has_none(self) -> bool:
        """True if no version was ever announced, as far as that can be known."""
        return not self._announced and not self.is_catching_up

    def load_newest(self) -> None:
        """Load what the last record announced, unless it is loaded. Failures are logged."""
        with self._lock:
            if not self._announced:
                return
            last = max(self._announced, key=lambda n: self._announced[n].order)
            record = self._announced[last].resources_id
            names = [n for n, a in self._announced.items() if record and a.resources_id == record] or [last]
        for name in names:
            try:
                self.release(self.load(name))
            except TrainingError as error:
                logger.error("%s cannot be served: %s", name, error)

    def load(self, name: str) -> PolicyVersion:
        """Bring an announced version into memory if it is not there, and hold it as :meth:`acquire` does.

        Raises:
            KeyError: it was never announced.
            TrainingError: its checkpoint cannot be loaded; every other version is as before.
        """
        with self._loading:
            with self._lock:
                announced = self._announced[name]
                self._select(name)
                held = self.acquire(name)
            if held is not None:
                return held
            try:
                version = self._read(name, announced)
            except TrainingError:
                self.on_change()
                raise
            with self._lock:
                replaced = self._loaded.pop(name, None)
                if replaced is not None:
                    self._retire(replaced)
                version.users = 1
                self._loaded[name] = version
                self._select(name)
                self._evict()
                bases = {loaded.base for loaded in self._loaded.values()}
                self._shared = {folder: model for folder, model in self._shared.items() if folder in bases}
        self.on_change()
        return version

    def acquire(self, name: str) -> PolicyVersion | None:
        """Hold a loaded version (``policy`` or empty: the newest), or ``None`` if it is not in memory."""
        with self._lock:
            newest = name in (NEWEST, "")
            version = self._loaded.get(self._newest if newest else name)
            if self.is_succeeded and name in self._announced:
                version = self._latest(name) or version
                newest = version is not None and version.name != name
            if version is None or not (newest or self._is_current(version)):
                return None
            version.users += 1
            return version

    def release(self, version: PolicyVersion) -> None:
        """Let go what :meth:`acquire` gave; its weights may change from now on."""
        with self._lock:
            version.users -= 1
            self._evict()

    def succeed(self, version: PolicyVersion) -> PolicyVersion | None:
        """Hold the version that goes on with another's calls in its place; ``None``, and nothing changes, without one.

        One of another architecture does not: prompts that fit the one may be too long for the other.
        """
        with self._lock:
            newer = self._latest(version.name) if self.is_succeeded else None
            if newer is None or newer is version or newer.architecture != version.architecture:
                return None
            newer.users += 1
            self.release(version)
            return newer

    def is_announced(self, name: str) -> bool:
        """True if ``name`` can be loaded on demand."""
        return name in self._announced

    def names(self) -> list[str]:
        """``policy``, unless there are adapters alone, and every version in memory, the newest first."""
        with self._lock:
            ordered = sorted(self._loaded, key=lambda n: self._announced[n].order, reverse=True)
        return [NEWEST, *ordered] if self._newest in self._loaded else ordered

    def _latest(self, name: str) -> PolicyVersion | None:
        """The newest loaded version of the model that ``name`` is a version of, not older than it."""
        model, order = name.rpartition("@")[0], self._announced[name].order
        later = {n: self._announced[n].order for n in self._loaded if n.rpartition("@")[0] == model}
        later = {n: o for n, o in later.items() if o >= order and self._is_current(self._loaded[n])}
        return self._loaded[max(later, key=later.__getitem__)] if later else None

    def _is_current(self, version: PolicyVersion) -> bool:
        """True if a version's weights are those announced last under its name."""
        return version.checkpoint_url == self._announced[version.name].checkpoint_url

    def _select(self, name: str) -> None:
        """Make ``name`` the newest if it is loaded and was announced after the present one."""
        if (
            name in self._loaded
            and not self._loaded[name].is_adapter
            and (self._newest not in self._loaded or self._announced[name].order >= self._announced[self._newest].order)
        ):
            self._newest = name

    def _read(self, name: str, announced: _Announced) -> PolicyVersion:
        url = announced.checkpoint_url
        of_adapter = Path(url.removeprefix("file://"))
        adapts = is_adapter(of_adapter)
        folder = base_of(of_adapter) if adapts else checkpoint_folder(url)
        architecture = (folder / "config.json").read_text("utf-8")
        version = PolicyVersion(name, announced.number, url, announced.resources_id, architecture=architecture)
        version.is_adapter = adapts
        if self.tokenizer is None:
            self.tokenizer = load_tokenizer(folder)
            self.token_characters_max = max(map(len, self.tokenizer.get_vocab()))
        if adapts or carries_adapters(folder):
            version.base = folder.resolve()
            shared = self._shared_model(version.base)
            version.model = shared.read(of_adapter, rank_max=self.rank_max) if adapts else shared.plain()
        else:
            version.model = self._own_model(folder, architecture)
        version.end_ids = end_of_turn_ids(version.model.generation_config, self.tokenizer)
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
        """Give up what is beyond :attr:`kept`: of all models, and of each policy's adapters, the oldest first."""
        kinds: dict[str, list[PolicyVersion]] = {}
        for version in self._loaded.values():
            kinds.setdefault(version.policy if version.is_adapter else "", []).append(version)
        for versions in kinds.values():
            unused = [v for v in versions if v.users == 0 and v.name != self._newest]
            unused.sort(key=lambda v: self._announced[v.name].order)
            for version in unused[: max(0, len(versions) - self.kept)]:
                self._retire(self._loaded.pop(version.name))

    def _retire(self, version: PolicyVersion) -> None:
        if version.users == 0 and not self._spare and version.base is None:
            self._spare.append(version)
