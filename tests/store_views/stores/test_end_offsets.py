"""Positions that others name: what is in the log is taken at its word, what is not is refused."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from lightstream.schemas.errors import StoreError
from lightstream.store_views.stores.kafka import offsets as offsets_module
from lightstream.store_views.stores.kafka.offsets import EndOffsets


class Log:
    """Two partitions, and how often their ends were asked for."""

    def __init__(self) -> None:
        self.ends = {0: 10, 1: 0}
        self.asked = 0

    def ends_of(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        assert topic == "rollouts"
        self.asked += 1
        return {partition: self.ends[partition] for partition in partitions if partition in self.ends}


@pytest.mark.parametrize("offsets", [{0: 10}, {1: 0}, {2: 0}, {0: 3, 77: 1}, {-1: 5}, {2**31: 5}])
def test_what_is_not_in_the_log_is_refused(offsets: dict[int, int]) -> None:
    with pytest.raises(StoreError, match="is said to have been seen"):
        EndOffsets(Log().ends_of).check("rollouts", offsets)


def test_what_lies_before_a_known_end_needs_no_question() -> None:
    log = Log()
    ends = EndOffsets(log.ends_of)
    for offset in (9, 3, 9, -1):
        ends.check("rollouts", {0: offset})
    assert log.asked == 1


def test_what_lies_beyond_a_known_end_is_asked_for_again() -> None:
    log = Log()
    ends = EndOffsets(log.ends_of)
    ends.check("rollouts", {0: 9})
    log.ends[0] = 11
    ends.check("rollouts", {0: 10})
    assert log.asked == 2


def test_a_known_end_is_forgotten_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker may lose its last records."""
    monkeypatch.setattr(offsets_module, "HELD_S", -1.0)
    log = Log()
    ends = EndOffsets(log.ends_of)
    ends.check("rollouts", {0: 9})
    log.ends[0] = 9
    with pytest.raises(StoreError, match="next record there will be 9"):
        ends.check("rollouts", {0: 9})
