"""What was odd about an attempt without costing it anything: one note per oddity, with a count."""

from __future__ import annotations

from collections.abc import Sequence

from lightstream.schemas.records import Note, NoteReason

from ..rewards import MatchedRewards
from ._held import Held
from ._joining import Joined
from ._tree import Tree

__all__ = ["notes_of"]


def notes_of(held: Held, tree: Tree, joined: Joined, rewards: MatchedRewards) -> list[Note]:
    """The attempt's notes, in the order of :class:`NoteReason`."""
    without_times = [key[1] for key, node in held.nodes.items() if not node.has_times]
    nested = [other.key[1] for call in joined.calls for other in call.joined]
    nested += [wrapper.key[1] for wrapper in joined.wrappers]
    notes = [
        _note(
            NoteReason.PARENT_CYCLE, [k[1] for k in tree.cycles], "spans are among their own parents; the link is cut"
        ),
        _note(NoteReason.MISSING_PARENT, [k[1] for k in tree.missing_parents], "the parent is not in the attempt"),
        _note(NoteReason.MISSING_TIME, without_times, "start or end is missing"),
        _note(NoteReason.JOINED_CALL, nested, "the span describes a call that another span represents"),
        _note(NoteReason.UNMATCHED_LINK, [s for s, _ in rewards.unmatched], _first_detail(rewards)),
        _note(
            NoteReason.UNATTRIBUTED_CALL,
            [observation.key[1] for observation in joined.unattributed],
            "the span names no response and has no tokens; the proxy recorded the calls",
        ),
    ]
    return [note for note in notes if note is not None]


def _note(reason: NoteReason, span_ids: Sequence[str], detail: str) -> Note | None:
    return Note(reason=reason, span_id=span_ids[0], count=len(span_ids), detail=detail) if span_ids else None


def _first_detail(rewards: MatchedRewards) -> str:
    return f"a reward names no call of the attempt: {rewards.unmatched[0][1]}" if rewards.unmatched else ""
