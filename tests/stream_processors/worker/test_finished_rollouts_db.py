"""Finished rollouts outside memory: what the file says is in the log, whatever it was stopped at."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from lightstream.stream_processors.worker.finished_rollouts_db import FinishedRolloutsDb


def finish(file: FinishedRolloutsDb, rollout_id: str, offset: int) -> None:
    file.put(rollout_id, offset, f"{rollout_id}@{offset}".encode())
    file.written(rollout_id, offset, offset, terminal=True)


def test_what_is_finished_is_found_again_by_the_next_process(tmp_path: Path) -> None:
    file = FinishedRolloutsDb(tmp_path / "f", "log")
    file.written("open", 0, 0, terminal=False)
    finish(file, "done", 1)
    assert file.get("done") == b"done@1"
    file.close()
    again = FinishedRolloutsDb(tmp_path / "f", "log")
    assert (again.get("done"), again.get("open"), again.read_from, again.reflected) == (b"done@1", None, 0, 1)
    again.written("open", 2, 2, terminal=False)
    finish(again, "open", 3)
    again.close()
    assert FinishedRolloutsDb(tmp_path / "f", "log").read_from == 4


def test_what_is_not_durable_stays_out_of_the_file(tmp_path: Path) -> None:
    file = FinishedRolloutsDb(tmp_path / "f", "log")
    finish(file, "r", 1)
    file.put("r", 2, b"amended")  # on its way when the process dies
    file.flush()
    assert file.get("r") == b"amended"
    again = FinishedRolloutsDb(tmp_path / "f", "log")
    assert again.get("r") == b"r@1"


def test_a_file_of_another_log_is_emptied(tmp_path: Path) -> None:
    file = FinishedRolloutsDb(tmp_path / "f", "log")
    finish(file, "r", 7)
    file.close()
    other = FinishedRolloutsDb(tmp_path / "f", "another")
    assert (other.get("r"), other.read_from, other.reflected) == (None, 0, -1)


def test_a_damaged_file_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"no database at all" * 1000)
    file = FinishedRolloutsDb(tmp_path / "f", "log")
    finish(file, "r", 0)
    file.close()
    assert FinishedRolloutsDb(tmp_path / "f", "log").get("r") == b"r@0"


STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.sampled_from(["", "flush", "crash"])), max_size=30)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_the_file_and_the_log_from_where_it_says_are_everything(
    steps: list[tuple[str, bool, str]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f"
        file = FinishedRolloutsDb(path, "log")
        log: list[tuple[str, bool]] = []
        for rollout_id, ends, then in steps:
            offset = len(log)
            log.append((rollout_id, ends))  # one that is over may be put back into the queue
            if ends:
                file.put(rollout_id, offset, f"{rollout_id}@{offset}".encode())
            file.written(rollout_id, offset, offset, terminal=ends)
            if then == "flush":
                file.flush()
            if then == "crash":
                file = FinishedRolloutsDb(path, "log")
                for again, (name, was_terminal) in enumerate(log[file.read_from :], file.read_from):
                    if was_terminal:
                        file.put(name, again, f"{name}@{again}".encode())
                    file.written(name, again, again, terminal=was_terminal)
            last = {name: number for number, (name, _) in enumerate(log)}
            ended = {name: number for number, (name, was_terminal) in enumerate(log) if was_terminal}
            for name in "abc":
                expected = f"{name}@{ended[name]}".encode() if name in ended else None
                assert file.get(name) == expected
                is_open = last.get(name, -1) > ended.get(name, -1)
                assert not is_open or last[name] >= file.read_from, "what is open is read again"
