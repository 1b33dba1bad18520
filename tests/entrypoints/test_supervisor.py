"""The supervisor restarts what dies, stops in order, and leaves no process behind."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lightstream.broker import EmbeddedBroker
from lightstream.runtime.interrupts import Interrupts
from lightstream.runtime.processes import (
    ProcessUnit,
    RestartPolicy,
    Restarts,
    Supervisor,
    child_environment,
    forget_restarts,
    note_restart,
    read_restarts,
    spawn,
)
from lightstream.runtime.processes import supervisor as supervising
from lightstream.runtime.processes import unit as process_unit
from lightstream.runtime.services import Service, announce, find
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import BrokerError, ServiceUnavailableError, SettingsError
from lightstream.up import BrokerUnit, Stack
from lightstream.up.stack import with_kept_ports
from tests.support.processes import processes_of
from tests.support.small_disk import MIB, fill, small_disk
from tests.support.waiting import eventually

ANNOUNCER = Path(__file__).parents[1] / "support" / "announcer.py"


@pytest.fixture
def local(tmp_path: Path) -> Settings:
    return Settings.load(data_dir=tmp_path)


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    supervisor = Supervisor()
    yield supervisor
    supervisor.stop()


def unit(name: str, settings: Settings, *arguments: str) -> ProcessUnit:
    return ProcessUnit(name, [sys.executable, str(ANNOUNCER), name, *arguments], settings)


def test_a_killed_process_is_back(supervisor: Supervisor, local: Settings) -> None:
    supervisor.start([unit("one", local), unit("two", local)])
    first, other = supervisor.pid("one"), supervisor.pid("two")
    for restarts in (1, 2):
        supervisor.kill("one")
        supervisor.wait_ready("one")
        assert supervisor.restarts == {"one": restarts, "two": 0}
    service = find(local, "one")
    assert service is not None
    assert service.pid == supervisor.pid("one") != first
    assert supervisor.pid("two") == other


def test_one_that_hangs_is_killed_and_started_again(local: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervising, "ASK_INTERVAL_S", 0.05)
    monkeypatch.setattr(supervising, "ASK_TIMEOUT_S", 1.0)
    told: list[tuple[str, int, str]] = []
    supervisor = Supervisor(RestartPolicy(silent_s_max=2.0), lambda *restart: told.append(restart))
    supervisor.start([unit("one", local, "http"), unit("two", local)])
    try:
        first, other = supervisor.pid("one"), supervisor.pid("two")
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        eventually(lambda: supervisor.pid("one") not in (first, None), what="another process")
        assert supervisor.pid("two") == other, "it has no port, and is not asked"
        name, count, reason = told[0]
        assert (name, count) == ("one", 1)
        assert reason.startswith("did not answer for ")
    finally:
        supervisor.stop()


def test_one_that_asks_to_be_started_again_is_not_kept_waiting_for_it(
    local: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = Supervisor(RestartPolicy(backoff_s_min=0.01, backoff_s_max=600.0, ends_in_a_row_max=1))
    try:
        supervisor.start([unit("one", local, "again")])
        eventually(lambda: supervisor.restarts["one"] == 3, what="three restarts")
        supervisor.wait_ready("one")
        assert supervisor.given_up == {}
        pauses = [message for message in caplog.messages if "starting it again" in message]
        assert pauses == ["one ended (exit status 75); starting it again in 0.0 s"] * 3
    finally:
        supervisor.stop()


def test_restarts_are_noted_for_others_to_read(local: Settings) -> None:
    assert read_restarts(local) == {}
    noted = Restarts("view", 2, "did not answer for 18 s", 1_700_000_000_000_000_000)
    note_restart(local, Restarts("view", 1, "ended (exit status 1)", 1_600_000_000_000_000_000))
    note_restart(local, noted)
    (local.data_dir / "run" / "other.restarts").write_text("half a fi")
    assert read_restarts(local) == {"view": noted}
    forget_restarts(local, ["view", "worker"])
    assert read_restarts(local) == {}


def test_it_stops_in_reverse_order(supervisor: Supervisor, local: Settings) -> None:
    supervisor.start([unit("first", local)])
    supervisor.start([unit("second", local), unit("third", local)])
    assert supervisor.names == ["first", "second", "third"]
    supervisor.stop()
    assert (local.data_dir / "order").read_text() == "stopped third\nstopped second\nstopped first\n"
    assert not processes_of(local.data_dir)
    supervisor.stop()  # again: nothing to do


def test_a_failing_first_start_shows_the_log_and_stops_the_rest(supervisor: Supervisor, local: Settings) -> None:
    with pytest.raises(ServiceUnavailableError, match=r"bad ended while starting \(exit status 1\)(.|\n)*reason is wr"):
        supervisor.start([unit("good", local), unit("bad", local, "fail")])
    assert not processes_of(local.data_dir)


def test_one_that_is_stopped_before_its_process_is_made_makes_none(local: Settings) -> None:
    """Its sockets are closed, so they cannot be handed over."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stopped = ProcessUnit("one", [sys.executable, str(ANNOUNCER), "one"], local, listeners={"socket": listener})
        stopped.stop()
        with pytest.raises(ServiceUnavailableError, match="one was stopped while it started"):
            stopped.start()
    with pytest.raises(ValueError, match="fds_to_keep"):
        spawn(["true"], log_file=local.data_dir / "log", listeners={"socket": listener})
    assert not processes_of(local.data_dir)


def test_a_second_process_of_that_name_is_refused(supervisor: Supervisor, local: Settings) -> None:
    supervisor.start([unit("one", local)])
    with pytest.raises(ServiceUnavailableError, match=r"a one \(process \d+\) already runs"):
        Supervisor().start([unit("one", local)])
    assert supervisor.pid("one") is not None


@pytest.mark.parametrize("replaced", [True, False])
def test_an_announcement_that_is_gone_is_made_again(local: Settings, replaced: bool) -> None:
    supervisor = Supervisor(RestartPolicy(silent_s_max=60.0))
    supervisor.start([unit("one", local)])
    try:
        pid = supervisor.pid("one")
        (local.data_dir / "run" / "one.json").unlink()
        if replaced:
            announce(local, Service("one", "", os.getpid(), 0))
        eventually(lambda: supervisor.pid("one") == pid)
        assert supervisor.restarts == {"one": 0}
    finally:
        supervisor.stop()
    assert find(local, "one") is None


def test_a_log_that_grows_too_long_is_cut_while_its_process_runs(
    local: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_unit, "LOG_BYTES_MAX", 100)
    supervisor = Supervisor(RestartPolicy(silent_s_max=60.0))
    talker = unit("talker", local, "talk")
    supervisor.start([talker])
    try:
        before, old = talker.pid, talker.log_file.with_suffix(".log.1")

        def first_number() -> int:
            numbers = talker.log_file.read_text().split()
            return int(numbers[0]) if old.exists() and numbers else 0

        eventually(first_number, what="a log begun again, which goes on where it was")
        assert b"\0" not in talker.log_file.read_bytes(), "it goes on at the old offset"
        assert talker.pid == before
    finally:
        supervisor.stop()


def test_a_second_stack_on_a_data_folder_is_refused(local: Settings) -> None:
    (local.data_dir / "run").mkdir()
    with (local.data_dir / "run" / "view.lock").open("w") as held:
        held.write("4711\n")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ServiceUnavailableError, match=r"process 4711 keeps the view of the data folder .* running"):
            Stack(local, services=["view", "proxy"]).start()
        assert not (local.data_dir / "broker").exists()
        assert not processes_of(local.data_dir)
    second = Stack(local, services=["view"])
    announce(local, Service("view", "", os.getpid(), 0))
    with pytest.raises(ServiceUnavailableError, match=r"a view .* already runs"):  # the names of the first are free now
        second.start()
    with (local.data_dir / "run" / "view.lock").open("w") as free:
        fcntl.flock(free, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_unknown_names_say_which_there_are(supervisor: Supervisor, local: Settings) -> None:
    supervisor.start([unit("one", local)])
    with pytest.raises(ServiceUnavailableError, match="'two' is not supervised here; these are: one"):
        supervisor.kill("two")
    with pytest.raises(SettingsError, match="no service teapot"):
        Stack(local, services=["teapot"])


def test_children_die_with_a_killed_parent(local: Settings) -> None:
    """Also when the thread that asked for them ended long before."""
    program = (
        "import sys, threading, time; from pathlib import Path; from lightstream.runtime.processes import spawn\n"
        "start = lambda: print(spawn(['sleep', '600'], log_file=Path(sys.argv[1]) / 'log').pid, flush=True)\n"
        "thread = threading.Thread(target=start); thread.start(); thread.join(); time.sleep(600)"
    )
    command = [sys.executable, "-c", program, str(local.data_dir)]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        child = Service("child", "", int(parent.stdout.readline()), 0)
        # It outlives the thread: a process started later by the same parent would too.
        assert child.is_alive
    finally:
        parent.kill()
        parent.communicate()
    eventually(lambda: not child.is_alive, what="the child is gone")


def test_what_a_process_leaves_behind_is_ended_too(local: Settings) -> None:
    for grace_s in (0.0, 20.0):
        program = [sys.executable, str(ANNOUNCER), "parent", "child"]
        parent = ProcessUnit("parent", program, local, group_grace_s=grace_s)
        parent.start()
        # It is started, but the system may still be about to give it its arguments.
        child = eventually(lambda: _line_of(local, " sleep 600"), what="the child is seen")
        if grace_s:
            os.kill(int(child.split()[0]), signal.SIGTERM)  # one that ends by itself is not waited for
        parent.stop()
        assert not processes_of(local.data_dir)


def _line_of(local: Settings, arguments: str) -> str:
    return next((line for line in processes_of(local.data_dir) if arguments in line), "")


def test_an_interrupted_start_leaves_no_process(local: Settings) -> None:
    """Ctrl-C after a program was asked for and before it runs: its log is a pipe that cannot be opened yet."""
    program = (
        "import os, signal, sys, threading; from pathlib import Path; from lightstream.runtime.processes import spawn\n"
        "pipe = Path(sys.argv[1]) / 'pipe'; os.mkfifo(pipe)\n"
        "def interrupt():\n"
        "    while not any(thread.name == 'lightstream-spawn' for thread in threading.enumerate()): pass\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=interrupt).start()\n"
        "try:\n"
        "    spawn(['sleep', '600'], log_file=pipe)\n"
        "except KeyboardInterrupt:\n"
        "    os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)\n"
        "    later = spawn(['sleep', '600'], log_file=pipe.with_name('log'))\n"  # orders are served in turn
        "    later.kill(); later.wait(); print('interrupted', flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, str(local.data_dir)]
    environment = child_environment(local)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "interrupted\n"
        eventually(lambda: len(processes_of(local.data_dir)) == 1, what="only the program is left")


def test_a_child_that_may_outlive_us_does(local: Settings) -> None:
    process = spawn(["sleep", "600"], log_file=local.data_dir / "log", dies_with_us=False)
    try:
        assert os.getsid(process.pid) == process.pid  # Ctrl-C in our terminal does not reach it
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def test_children_get_exactly_our_settings(local: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIGHTSTREAM_TOPIC_PARTITIONS", "7")
    environment = child_environment(local)
    assert "LIGHTSTREAM_TOPIC_PARTITIONS" not in environment
    assert environment["LIGHTSTREAM_DATA_DIR"] == str(local.data_dir)
    assert environment["PATH"] == os.environ["PATH"]


def test_services_keep_their_ports(local: Settings) -> None:
    first = with_kept_ports(local, ["view", "proxy"])
    assert first.view_port != first.proxy_port
    assert (first.policy_port, first.broker_port) == (0, 0)
    again = with_kept_ports(local, ["view", "policy", "proxy"])
    assert (again.view_port, again.proxy_port) == (first.view_port, first.proxy_port)
    assert again.view_flight_port == first.view_flight_port != 0
    with socket.create_server(("127.0.0.1", first.view_port)):  # taken by a stranger meanwhile
        assert with_kept_ports(local, ["view"]).view_port != first.view_port
    named = local.model_copy(update={"proxy_port": 12_345})
    assert with_kept_ports(named, ["proxy"]).proxy_port == 12_345


def test_a_killed_broker_is_back_on_its_port(supervisor: Supervisor, local: Settings) -> None:
    broker = EmbeddedBroker(local)
    supervisor.start([BrokerUnit(broker, local)])
    address = broker.start()
    supervisor.kill("broker")
    supervisor.wait_ready("broker")
    assert broker.start() == address
    supervisor.stop()
    assert not processes_of(local.data_dir)


def test_a_full_disk_does_not_end_supervision(local: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where a restart is noted nor where an announcement is made again."""
    monkeypatch.setattr(supervising, "ASK_INTERVAL_S", 0.05)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    supervisor = Supervisor(RestartPolicy(silent_s_max=60.0), full)
    one = unit("one", local)
    looked_after: list[int] = []

    def look_after(_: object) -> None:
        looked_after.append(1)
        full()

    monkeypatch.setattr(one, "look_after", look_after)
    supervisor.start([one])
    try:
        for restarts in (1, 2):
            supervisor.kill("one")
            supervisor.wait_ready("one")
            assert supervisor.restarts == {"one": restarts}
        seen = len(looked_after)
        eventually(lambda: len(looked_after) > seen + 2, what="it is looked after all the same")
        supervisor.check()
    finally:
        supervisor.stop()


def test_a_thread_that_cannot_go_on_is_told_to_who_waits(local: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = Supervisor()
    one = unit("one", local)
    supervisor.start([one])
    try:

        def broken() -> None:
            raise RuntimeError("no thread can be made")

        monkeypatch.setattr(one, "start", broken)
        supervisor.kill("one")
        with (
            Interrupts() as interrupts,
            pytest.raises(ServiceUnavailableError, match="one cannot be kept running: Runt"),
        ):
            interrupts.wait(supervisor.check)
    finally:
        supervisor.stop()


def test_one_that_must_not_run_is_ended_and_started_when_it_may(local: Settings) -> None:
    """The embedded broker on a disk without room; other processes have their own."""
    told: list[str] = []
    with small_disk(local.data_dir / "disk", 800 * MIB) as disk:
        settings = local.model_copy(update={"data_dir": disk, "disk_free_bytes_min": 64 * MIB})
        supervisor = Supervisor(RestartPolicy(silent_s_max=60.0), lambda *restart: told.append(restart[2]))
        broker = EmbeddedBroker(settings)
        supervisor.start([BrokerUnit(broker, settings)])
        try:
            address = broker.start()
            ballast = fill(disk, leave_bytes=32 * MIB)
            eventually(lambda: told, what="the broker was stopped")
            assert supervisor.pid("broker") is None
            assert "was stopped: the disk of" in told[0]
            with pytest.raises(BrokerError, match="is not started: the disk of"):
                BrokerUnit(broker, settings).start()
            ballast.unlink()
            supervisor.wait_ready("broker")
            assert broker.start() == address
            supervisor.check()
        finally:
            supervisor.stop()
