"""The one rule for tokens that a policy may be trained on: it sampled them itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lightstream.schemas.policy_names import base_of_model, version_of_text
from lightstream.schemas.records import TripletRecord
from lightstream.schemas.sampling import changed_sampling, read_sampling, temperature_of

from .exclusions import Exclusion

TEMPERATURES_EQUAL = 1e-6
"""Relative: a temperature that went through float32 is still the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPolicy:
    """The names that identify a policy's own calls.

    Attributes:
        name: what its versions are served under, before the ``@``.
        run_id: the run that publishes them, as the resources ``<run_id>-v<version>``.
        version: the current version.
        versions_back: so many versions before it may have sampled, too.
        temperature: the one that the actor computes at.
        former_name: as ``name``, of calls that were recorded before the run had that one.
    """

    name: str
    run_id: str
    version: int
    versions_back: int = 0
    temperature: float = 1.0
    former_name: str = ""

    def reason_against(self, triplet: TripletRecord) -> Exclusion | None:
        """Why a call's tokens may not be trained on; ``None``: they may.

        ============================= ===========================================================================
        ``other_policy``              Its resources are not of this run; or nobody says which they are, and the
                                      model that answered has another name. A version above the current one, too.
        ``unknown_version``           Nobody says which version sampled a token.
        ``stale``                     A token is of a version that is too old.
        ``other_temperature``         Its temperature is another, or nobody recorded the request.
        ``other_sampling``            Its request changes the distribution otherwise: ``top_p``, a penalty, a format.
        ============================= ===========================================================================

        A call that a version of Lightstream assembled that did not keep the request passes the last two.
        """
        return self.is_foreign(triplet) or self._reason_of_versions(triplet) or self._reason_of_sampling(triplet)

    def is_foreign(self, triplet: TripletRecord) -> Exclusion | None:
        """``other_policy`` where it is another model's call, or nobody knows whose."""
        known = [version for version in versions_of(triplet) if version is not None]
        if known and max(known) > self.version:
            return Exclusion.OTHER_POLICY
        if triplet.resources_id is not None:
            run_id, _, number = triplet.resources_id.rpartition("-v")
            is_own = run_id == self.run_id and (not known or version_of_text(number) in known)
        else:
            base = base_of_model(triplet.model)
            names = (self.name, self.former_name or self.name)
            is_own = any(base == name or base.endswith(f"/{name}") for name in names)  # LiteLLM has a provider before
        return None if is_own else Exclusion.OTHER_POLICY

    def _reason_of_versions(self, triplet: TripletRecord) -> Exclusion | None:
        versions = versions_of(triplet)
        if None in versions:
            return Exclusion.UNKNOWN_VERSION
        oldest = min(version for version in versions if version is not None)
        return Exclusion.STALE if oldest < self.version - self.versions_back else None

    def _reason_of_sampling(self, triplet: TripletRecord) -> Exclusion | None:
        if triplet.sampling_json is None:
            return None
        sampling = read_sampling(triplet.sampling_json)
        if sampling is None or not math.isclose(temperature_of(sampling), self.temperature, rel_tol=TEMPERATURES_EQUAL):
            return Exclusion.OTHER_TEMPERATURE
        return Exclusion.OTHER_SAMPLING if changed_sampling(sampling) else None


def versions_of(triplet: TripletRecord) -> list[int | None]:
    """The versions that sampled a call's tokens; ``None`` among them where nobody knows."""
    if triplet.policy_version_runs:
        return [run.policy_version for run in triplet.policy_version_runs]
    return [triplet.policy_version]
