"""Releases: their changes, the fold of these, and the arm of a caller. Pure.

A change is made from a state and a wish. The record has the whole state after it and a revision that is one higher, so
of two changes that were made from one state the first in the log counts.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .errors import StoreError
from .records.release import ReleaseAction, ReleaseChanged, ReleaseKey, ReleaseRule

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Of a release. It has no ``@`` and no ``/``, so none is the name of a run's version."""

MODEL_CHARS_MAX = 500
RULES_MAX = 20

_SEE = "`lightstream release list` shows the releases."


class Release(NamedTuple):
    """A release's name and its state, ``None`` where there is none yet."""

    name: str
    state: ReleaseChanged | None


@dataclass(frozen=True, slots=True)
class Author:
    """Who changes a release, why and when."""

    by: str
    reason: str
    now_unix_nano: int


def folded(states: dict[str, ReleaseChanged], record: ReleaseChanged) -> bool:
    """Take a record of the log into ``states``; returns whether it counts, and did not lose a race."""
    known = states.get(record.release)
    if record.revision != (1 if known is None else known.revision + 1):
        return False
    states[record.release] = record
    return True


def point_of(release: str, key: str) -> float:
    """Place of a key on [0, 1): the first eight bytes of SHA-256 of ``<release>\\0<key>`` (UTF-8), of 2^64."""
    digest = hashlib.sha256(f"{release}\0{key}".encode("utf-8", "surrogatepass")).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2.0**53


def is_of_candidate(state: ReleaseChanged, key: str) -> bool:
    """Whether the candidate serves the key. A key that a share has, every larger share has."""
    return state.candidate is not None and not state.paused and point_of(state.release, key) < state.share


def set_stable(
    release: Release,
    author: Author,
    stable: str | None = None,
    *,
    key: ReleaseKey | None = None,
    rules: Sequence[ReleaseRule] | None = None,
) -> ReleaseChanged:
    """Name the stable model, the key or the rules of a release; a new name is a new release.

    Args:
        stable, key, rules: ``None`` leaves it as it is.

    Raises:
        StoreError: names what cannot be, and the next step. As of all changes here.
    """
    name, state = release
    if NAME.fullmatch(name) is None:
        raise StoreError(
            f"a release's name is 1 to 100 letters, digits, '.', '_' and '-', not {name!r:.200}.",
            next_step="Choose another name.",
        )
    if stable is None and state is None:
        raise StoreError(f"there is no release {name!r} yet.", next_step="Name the model that serves it: --stable.")
    if stable is not None:
        _check_model(stable)
    if rules is not None:
        _check_rules(rules)
    if state is None:
        return ReleaseChanged(
            release=name,
            revision=1,
            action=ReleaseAction.SET,
            stable=stable or "",
            key=key or ReleaseKey.SESSION,
            rules=list(rules or ()),
            by=author.by,
            reason=author.reason,
            changed_unix_nano=author.now_unix_nano,
        )
    changes: dict[str, Any] = {}
    if stable is not None and stable != state.stable:
        _require_no_candidate(state, "its stable model cannot be changed")
        changes |= {"stable": stable, "previous": state.stable}
    if key is not None and key != state.key:
        _require_no_candidate(state, "its key cannot be changed")
        changes["key"] = key
    if rules is not None:
        changes["rules"] = list(rules)
    if not changes:
        raise StoreError(f"release {name!r} is so already: {state.stable!r} serves it.", next_step=_SEE)
    return _changed(state, author, ReleaseAction.SET, changes)


def offer(
    release: Release, author: Author, candidate: str, share: float, *, report_id: str | None = None
) -> ReleaseChanged:
    """Have a candidate serve a share of the keys.

    Args:
        report_id: report of the gate that allowed it.
    """
    state = _known(release)
    _require_running(state, "no candidate may be offered")
    _require_no_candidate(state, "it takes no second one")
    _check_model(candidate)
    if candidate == state.stable:
        raise StoreError(
            f"{candidate!r} is the stable model of release {state.release!r}.", next_step="Offer another version."
        )
    offered = {"candidate": candidate, "share": _share(share), "offered_unix_nano": author.now_unix_nano}
    return _changed(state, author, ReleaseAction.OFFERED, {**offered, "report_id": report_id})


def set_share(release: Release, author: Author, share: float) -> ReleaseChanged:
    """Change the candidate's share."""
    state = _known(release)
    _require_running(state, "the share has no effect")
    _require_candidate(state, "there is nothing to share with")
    if _share(share) == state.share:
        raise StoreError(f"{state.candidate!r} has a share of {share:g} already.", next_step=_SEE)
    return _changed(state, author, ReleaseAction.SHARE, {"share": share})


def promote(release: Release, author: Author) -> ReleaseChanged:
    """Make the candidate the stable model."""
    state = _known(release)
    _require_running(state, "no candidate may be promoted")
    _require_candidate(state, "there is nothing to promote")
    changes = {"stable": state.candidate, "previous": state.stable, **_NO_CANDIDATE}
    return _changed(state, author, ReleaseAction.PROMOTED, changes)


def roll_back(release: Release, author: Author, *, to_previous: bool = False) -> ReleaseChanged:
    """Take the candidate away; or return to the stable model before this one.

    Args:
        to_previous: whether to return. A candidate then goes first: a rule may have rolled it back a moment ago, and a
            second rollback must not demote the stable model.
    """
    state = _known(release)
    if not to_previous:
        way_back = f" (to return to {state.previous!r}: --to-previous)" if state.previous else ""
        _require_candidate(state, f"there is nothing to roll back{way_back}")
        return _changed(state, author, ReleaseAction.ROLLED_BACK, _NO_CANDIDATE)
    _require_no_candidate(state, "roll that back first")
    if state.previous is None:
        raise StoreError(
            f"release {state.release!r} has no candidate and no stable model before {state.stable!r}.",
            next_step="Name one: `lightstream release set NAME --stable MODEL`.",
        )
    changes = {"stable": state.previous, "previous": None, "report_id": None}
    return _changed(state, author, ReleaseAction.ROLLED_BACK, changes)


def pause(release: Release, author: Author) -> ReleaseChanged:
    """Have the stable model serve every call, and stop learning. A candidate keeps its share for later."""
    state = _known(release)
    _require_running(state, "it cannot be paused again")
    return _changed(state, author, ReleaseAction.PAUSED, {"paused": True})


def resume(release: Release, author: Author) -> ReleaseChanged:
    """End a pause; a candidate has its share again."""
    state = _known(release)
    if not state.paused:
        raise StoreError(f"release {state.release!r} is not paused.", next_step=_SEE)
    return _changed(state, author, ReleaseAction.RESUMED, {"paused": False})


_NO_CANDIDATE: dict[str, Any] = {"candidate": None, "share": 0.0, "offered_unix_nano": None}


def _changed(state: ReleaseChanged, author: Author, action: ReleaseAction, changes: dict[str, Any]) -> ReleaseChanged:
    revision_fields = {
        "revision": state.revision + 1,
        "action": action,
        "by": author.by,
        "reason": author.reason,
        "changed_unix_nano": author.now_unix_nano,
    }
    return ReleaseChanged.model_validate(dict(state) | changes | revision_fields)


def _known(release: Release) -> ReleaseChanged:
    if release.state is None:
        raise StoreError(
            f"there is no release {release.name!r:.200}.",
            next_step="Make it: `lightstream release set NAME --stable MODEL`.",
        )
    return release.state


def _require_running(state: ReleaseChanged, effect: str) -> None:
    if state.paused:
        raise StoreError(
            f"release {state.release!r} is paused: {effect}.",
            next_step=f"`lightstream release resume {state.release}` ends the pause.",
        )


def _require_candidate(state: ReleaseChanged, effect: str) -> None:
    if state.candidate is None:
        raise StoreError(
            f"release {state.release!r} has no candidate: {effect}.",
            next_step=f"Offer one: `lightstream release offer {state.release} MODEL`.",
        )


def _require_no_candidate(state: ReleaseChanged, effect: str) -> None:
    if state.candidate is not None:
        raise StoreError(
            f"release {state.release!r} has the candidate {state.candidate!r}: {effect}.",
            next_step=f"Promote it or roll it back: `lightstream rollback {state.release}`.",
        )


def _share(share: float) -> float:
    if not (math.isfinite(share) and 0.0 <= share <= 1.0):
        raise StoreError(f"a share is a number from 0 to 1, not {share!r}.", next_step="0.1 is a tenth of the keys.")
    return share


def _check_model(model: str) -> None:
    if not model.strip() or len(model) > MODEL_CHARS_MAX:
        raise StoreError(
            f"a model is named by 1 to {MODEL_CHARS_MAX} characters, not {model!r:.100}.",
            next_step="Give a name that the model server knows, such as RUN@VERSION.",
        )


def _check_rules(rules: Sequence[ReleaseRule]) -> None:
    names = [rule.name for rule in rules]
    if len(rules) > RULES_MAX:
        raise StoreError(f"there are {len(rules)} rules; a release has {RULES_MAX} at most.")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise StoreError(f"two rules have the name {twice[0]!r}.", next_step="Give each a name of its own.")
