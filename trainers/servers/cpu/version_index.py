"""The announced versions: the version and run that each name means. Pure.

A run's versions are served under names that begin with the run's: ``digits@7``, ``digits/planner@7``. A name that two
runs published means neither: each is asked for with its run before the name, ``digits/policy@7``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lightstream.schemas.policy_names import run_of_resources

Key = tuple[str, str]
"""Run and name: what tells a version from all others."""


@dataclass(frozen=True, slots=True)
class Announced:
    """A version that can be loaded.

    Attributes:
        name: what it is served as, ``digits@7``.
        number: the version, as in ``resources``.
        checkpoint_url: the folder of its weights.
        resources_id: of the record that announced it, or empty.
        run_id: whose it is; empty for one that no run published.
        order: later announcements have larger ones.
    """

    name: str
    number: int
    checkpoint_url: str
    resources_id: str
    run_id: str
    order: int

    @property
    def key(self) -> Key:
        """The identity among all others."""
        return self.run_id, self.name


@dataclass(slots=True)
class VersionIndex:
    """All versions by name. Not thread-safe."""

    _of_key: dict[Key, Announced] = field(default_factory=dict[Key, Announced])
    _of_name: dict[str, list[Key]] = field(default_factory=dict[str, list[Key]])
    _count: int = 0

    def add(
        self,
        name: str,
        number: int,
        checkpoint_url: str,
        resources_id: str = "",
        *,
        run_id: str | None = None,
        also_called: str = "",
    ) -> None:
        """Take in an announcement, in place of an earlier one of this name and run.

        Args:
            run_id: ``None``: that of the resources' id.
            also_called: another name for it.
        """
        run_id = run_of_resources(resources_id) if run_id is None else run_id
        self._count += 1
        version = Announced(name, number, checkpoint_url, resources_id, run_id, self._count)
        self._of_key[version.key] = version
        names = [name, f"{run_id}/{name}"] if run_id else [name]
        for each in {*names, also_called or name}:
            keys = self._of_name.setdefault(each, [])
            # What no record announced (--checkpoint) is served until a record has the name; what the run announced by
            # another one (0.2.0 had `policy@7`), until it announces this one.
            keys[:] = [key for key in keys if key[0] != run_id and self._of_key[key].resources_id]
            keys.append(version.key)

    def __bool__(self) -> bool:
        return bool(self._of_key)

    def __getitem__(self, key: Key) -> Announced:
        return self._of_key[key]

    def find(self, name: str) -> Announced | None:
        """The version that ``name`` means; ``None`` where nobody, or more than one run, published that name."""
        keys = self._of_name.get(name, [])
        return self._of_key[keys[0]] if len(keys) == 1 else None

    def refusal(self, name: str) -> str | None:
        """Say why ``name`` means no version although it was published; ``None`` where it does, or was not."""
        keys = self._of_name.get(name, [])
        if len(keys) < 2:
            return None
        runs = [run_id for run_id, _ in keys]
        named = " and ".join(f"run {run_id!r}" if run_id else "no run" for run_id in runs)
        ask = " or ".join(repr(f"{run_id}/{name}") for run_id in runs if run_id)
        return f"the model name {name!r} is ambiguous: {named} published weights under it; ask for {ask}"

    def last(self) -> list[Announced]:
        """All that the last record announced; one version without a record."""
        if not self._of_key:
            return []
        last = max(self._of_key.values(), key=lambda version: version.order)
        together = [v for v in self._of_key.values() if v.resources_id and v.resources_id == last.resources_id]
        return together or [last]
