"""Plants faults in the core, one at a time, and shows if the tests notice: ``python -m benchmarks.planted_faults``.

Each fault is one line changed in a copy of the last commit. A fault is caught if the tests named beside it fail. Give
names of faults to try these alone, or ``--profile full`` for all examples of the property tests.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
CORE = "stream_processors/core"
TRAINERS = "trainers"
PROXY = "producers/llm_proxy"
CODEC = "schemas/codec"
GATE = "store_views/server/statement.py"
TIMEOUT_S = 1800.0
TEST_TIMEOUT_S = 120
"""Of one test, where a fault makes a loop that never ends. Without a fault the slowest of them takes a tenth."""
MEMORY_BYTES_MAX = 8 * 2**30
"""Of a process of the tests: a fault may make a loop that never ends."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One changed line.

    Attributes:
        file: path in the repository.
        before, after: text that occurs once in the file, and its replacement.
        tests: what has to fail.
    """

    name: str
    file: str
    before: str
    after: str
    tests: str


LIFECYCLE, ASSEMBLY = "tests/stream_processors/lifecycle", "tests/stream_processors/assembly"
BATCH, LEDGER = "tests/trainers/test_batch.py", "tests/trainers/test_ledger.py"
CAPTURE = "tests/producers/llm_proxy/test_capture.py tests/producers/llm_proxy/habits"

FAULTS = (
    Fault("a repeated event counts twice", f"{CORE}/lifecycle/fold.py",
          "repeated = state is not None and event.event_id in state.moved_by", "repeated = False", LIFECYCLE),
    Fault("a time-out is reported again and again", f"{CORE}/lifecycle/deadlines.py",
          "        watch.timeout_reported = True\n", "", LIFECYCLE),
    Fault("silence begins one nanosecond late", f"{CORE}/lifecycle/deadlines.py",
          "watch.heard_unix_nano + watch.silence_nanos > now", "watch.heard_unix_nano + watch.silence_nanos >= now",
          LIFECYCLE),
    Fault("an attempt begins by the event's clock", f"{CORE}/lifecycle/fold.py",
          "if action in BEGINNINGS and logged_unix_nano is not None:", "if False and logged_unix_nano is not None:",
          LIFECYCLE),
    Fault("a span joins the first record with its tokens", f"{CORE}/assembly/_deduplication.py",
          "same.popleft() if len(same) > 1 else same[0]", "same[0]", ASSEMBLY),
    Fault("an answer joins the record after it", f"{CORE}/assembly/_deduplication.py",
          "free = _last_free(taken, before - 1)", "free = _last_free(taken, 0)", ASSEMBLY),
    Fault("a late span makes no revision", f"{CORE}/assembly/_late_spans.py",
          "            entry.revision += 1\n", "            pass\n", ASSEMBLY),
    Fault("a late span is taken twice", f"{CORE}/assembly/_late_spans.py",
          "        if offset <= entry.closed_offset:\n            return\n", "", ASSEMBLY),
    Fault("a step may be repeated in the ledger", f"{TRAINERS}/run/history.py",
          "return record.step == self.last_step + (record.outcome is not StepOutcome.MEASURED)",
          "return record.step >= self.last_step", LEDGER),
    Fault("what a step consumed is forgotten", f"{TRAINERS}/run/history.py",
          "            self.settled.consume(c.group_id, {c.rollout_id: (c.attempt_id, c.revision)})\n",
          "            pass\n", f"{LEDGER} tests/trainers/test_recovery.py"),
    Fault("skipped groups come again", f"{TRAINERS}/run/history.py",
          "            self.settled.skip(group_id)\n", "            pass\n",
          f"{LEDGER} tests/trainers/test_skipped_groups.py tests/trainers/test_recovery.py"),
    Fault("any schema's tables may be read", GATE,
          'return table in TABLES and schema in ("", "main", CATALOG)', "return table in TABLES or schema != ''",
          "tests/store_views/test_query.py tests/store_views/server"),
    Fault("any table function may be called", GATE,
          "return None if name.lower() in TABLE_FUNCTIONS else", "return None if name else",
          "tests/store_views/test_query.py tests/store_views/server"),
    Fault("the first finish reason stays", f"{PROXY}/capture.py",
          "    if reason and not choice.is_interrupted:\n", "    if reason and not choice.finish_reason:\n", CAPTURE),
    Fault("token ids of the last chunk replace the others", f"{PROXY}/capture.py",
          "_joined(choice.token_ids, _integers(_field(entry, _RESPONSE_IDS)))",
          "_joined(None, _integers(_field(entry, _RESPONSE_IDS)))", CAPTURE),
    Fault("the agent sees what it did not ask for", f"{PROXY}/capture.py",
          "                _remove(entry, _RESPONSE_IDS)\n", "                pass\n", CAPTURE),
    Fault("negative longs lose their sign", f"{CODEC}/reader.py",
          "return value >> 1 ^ -(value & 1), at", "return value >> 1, at", "tests/schemas"),
    Fault("a boolean may be anything", f"{CODEC}/reader.py",
          "    if data[at] > 1:\n", "    if data[at] > 255:\n", "tests/schemas"),
    Fault("a token without an advantage has weight", f"{TRAINERS}/rollouts/batch/arrays.py",
          "    mask *= ~np.isnan(advantages)\n", "", f"{BATCH} tests/trainers/test_training_truth.py"),
    Fault("tokens of old policies are trained on", f"{TRAINERS}/rollouts/batch/own_policy.py",
          "oldest < self.version - self.versions_back", "oldest < 0",
          f"{BATCH} tests/trainers/test_own_policy.py"),
)  # fmt: skip


def main() -> None:
    """Plant each fault, print whether it was caught, and exit with 1 if one was not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="faults to plant; unset: all")
    parser.add_argument("--profile", default="planted", choices=("planted", "full"))
    options = parser.parse_args()
    wanted = [fault for fault in FAULTS if not options.names or fault.name in options.names]
    missed = 0
    with _copy() as folder:
        for tests in sorted({fault.tests for fault in wanted}):
            if _fails(tests, folder, options.profile):
                raise SystemExit(f"{tests} fail without a fault.")
        for fault in wanted:
            caught = _is_caught(fault, folder, options.profile)
            missed += not caught
            print(f"{'caught' if caught else 'MISSED'}  {fault.name}", flush=True)
    print(f"{len(wanted) - missed} of {len(wanted)} caught")
    sys.exit(1 if missed else 0)


@contextmanager
def _copy() -> Generator[Path]:
    """The last commit in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield Path(folder)


def _is_caught(fault: Fault, folder: Path, profile: str) -> bool:
    file = folder / fault.file
    text = file.read_text("utf-8")
    if text.count(fault.before) != 1:
        raise SystemExit(f"{fault.file} has {text.count(fault.before)} times {fault.before!r}: change the fault.")
    file.write_text(text.replace(fault.before, fault.after), "utf-8")
    try:
        return _fails(fault.tests, folder, profile)
    finally:
        file.write_text(text, "utf-8")


def _fails(tests: str, folder: Path, profile: str) -> bool:
    """Whether a test fails, does not end, or takes more memory than there is."""
    try:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-x",
                "--hypothesis-profile",
                profile,
                "--timeout",
                str(TEST_TIMEOUT_S),
                *_shortest_first(tests),
            ],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(folder)},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            preexec_fn=_limit_memory,
        )
    except subprocess.TimeoutExpired:
        return True
    if done.returncode > 1:
        raise SystemExit(f"{tests} did not run ({done.returncode}): {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode != 0


def _shortest_first(tests: str) -> list[str]:
    """Files of tests in the order of how long they take, as most faults are caught at once."""
    lines = (ROOT / "tests/durations.txt").read_text("utf-8").splitlines()
    seconds = {name: int(count) for count, _, name in (line.partition(" ") for line in lines)}
    places = [ROOT / test for test in tests.split()]
    files = [file for place in places for file in (place.rglob("test_*.py") if place.is_dir() else [place])]
    return sorted((str(file.relative_to(ROOT)) for file in files), key=lambda name: seconds.get(name, 0))


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))


if __name__ == "__main__":
    main()
