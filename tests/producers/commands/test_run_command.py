"""One run of a command: what it was given, what it left, and that nothing of it stays."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest

from lightstream.producers.commands import CommandError, CommandLimits
from lightstream.producers.commands.process import OUTPUT_KEPT_BYTES, CommandResult, run_command
from tests.producers.commands.survivors import survivors
from tests.support.waiting import eventually

PYTHON = shlex.quote(sys.executable)
DOUBLE_FORK = f"""{PYTHON} -S -c '
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("started", "w").close()
        time.sleep(1000)
    os._exit(0)
os.wait()
while not os.path.exists("started"):
    time.sleep(0.01)
'"""

STUBBORN: Mapping[str, str] = {
    "hangs": "touch started; sleep 1000",
    "ignores SIGTERM": "trap '' TERM; touch started; while true; do sleep 1; done",
    "children ignore SIGTERM": "(trap '' TERM; touch started; sleep 1000 & sleep 1000) & wait",
    "forks twice": f"{DOUBLE_FORK}; sleep 1000",
    "leaves its session": "setsid sh -c 'touch started; sleep 1000' & sleep 1000",
    "stops itself": "touch started; kill -STOP $$",
    "prints without end": "touch started; yes",
}


@pytest.fixture
def mark() -> str:
    return uuid.uuid4().hex


async def run(
    command: str, folder: Path, mark: str = "", content: bytes = b"", limits: CommandLimits | None = None
) -> CommandResult:
    environment = {"PATH": os.environ["PATH"], "MARK": mark}
    limits = limits or CommandLimits(grace_s=0.2)
    return await run_command(command, folder=folder, environment=environment, content=content, limits=limits)


async def test_input_output_status_and_folder(tmp_path: Path) -> None:
    result = await run("cat; pwd; echo wrong >&2; exit 7", tmp_path, content=b"task\n")
    assert result == CommandResult(7, f"task\n{tmp_path}\n".encode(), b"wrong\n")


async def test_a_signal_is_in_the_status(tmp_path: Path) -> None:
    assert (await run("kill -9 $$", tmp_path)).status == 128 + signal.SIGKILL


async def test_input_that_nobody_reads_is_no_failure(tmp_path: Path) -> None:
    assert (await run("exec 0<&-; exit 0", tmp_path, content=b"x" * 10_000_000)).status == 0


async def test_the_first_of_much_output_is_kept(tmp_path: Path) -> None:
    result = await run("echo begin; head -c 100000000 /dev/zero; head -c 9000 /dev/zero >&2; echo end >&2", tmp_path)
    assert result.output.startswith(b"begin\n")
    assert len(result.output) == OUTPUT_KEPT_BYTES
    assert result.error_tail.endswith(b"end\n")


@pytest.mark.parametrize("command", STUBBORN.values(), ids=STUBBORN.keys())
async def test_nothing_is_left_of_a_command_that_is_cancelled(tmp_path: Path, command: str, mark: str) -> None:
    running = asyncio.create_task(run(command, tmp_path, mark))
    await asyncio.to_thread(eventually, (tmp_path / "started").exists)
    assert survivors(mark)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not survivors(mark)


async def test_what_a_command_leaves_running_ends_with_it(tmp_path: Path, mark: str) -> None:
    result = await run(f"{DOUBLE_FORK}; sleep 1000 & echo done", tmp_path, mark)
    assert (result.status, result.output) == (0, b"done\n")
    assert not survivors(mark)


async def test_a_folder_that_grows_too_large_ends_the_command(tmp_path: Path, mark: str) -> None:
    command = "i=0; while true; do i=$((i+1)); head -c 500000 /dev/zero > file$i || sleep 1000; done"
    with pytest.raises(CommandError, match="grown over 2,000,000 bytes"):
        await run(command, tmp_path, mark, limits=CommandLimits(folder_bytes_max=2_000_000, grace_s=0.2))
    assert not survivors(mark)


async def test_a_file_that_grows_too_large_cannot(tmp_path: Path) -> None:
    result = await run("head -c 3000000 /dev/zero > file", tmp_path, limits=CommandLimits(folder_bytes_max=2_000_000))
    assert result.status == 128 + signal.SIGXFSZ
    assert (tmp_path / "file").stat().st_size <= 2_000_000


def test_the_end_of_the_runner_itself_ends_the_command(tmp_path: Path, mark: str) -> None:
    program = (
        "import asyncio, os, sys; from pathlib import Path; "
        "from lightstream.producers.commands.process import CommandLimits, run_command; "
        "asyncio.run(run_command(sys.argv[1], folder=Path(sys.argv[2]), environment=dict(os.environ), content=b'', "
        "limits=CommandLimits(grace_s=0.2)))"
    )
    arguments = [sys.executable, "-c", program, STUBBORN["forks twice"], str(tmp_path)]
    process = subprocess.Popen(arguments, env=os.environ | {"MARK": mark})
    try:
        eventually((tmp_path / "started").exists)
    finally:
        process.kill()
        process.wait(300)
    eventually(lambda: not survivors(mark))
