"""Facts about the source of the rows that the view's server needs."""

from __future__ import annotations

from typing import Protocol

from .catch_up import Progress
from .database import ViewDatabase
from .positions import Place, Positions


class ViewSource(Protocol):
    """Rows, and how far they reflect their source. All of it is for any thread; only the two marked ones block."""

    @property
    def database(self) -> ViewDatabase:
        """The tables, once it was started."""
        ...

    @property
    def positions(self) -> Positions:
        """The offsets that the tables reflect."""
        ...

    @property
    def failure(self) -> Exception | None:
        """The error that ended it, after which the tables stay as they are."""
        ...

    @property
    def rebuilding(self) -> Progress | None:
        """Progress towards where the source ended at the start, until that is reached."""
        ...

    def end_offsets(self) -> dict[Place, int]:
        """Place -> end of the partition as last heard."""
        ...

    def end_offsets_now(self) -> dict[Place, int]:
        """Place -> end of the partition, asked now. Blocks.

        Raises:
            ServiceUnavailableError: the source does not answer.
        """
        ...

    def fetched(self) -> dict[Place, int]:
        """Place -> next offset to be fetched: records below are in the tables, or on their way."""
        ...

    def silent_s(self) -> float | None:
        """Seconds since the source was last heard of; 0 while it answers, ``None`` where it never did. Blocks."""
        ...
