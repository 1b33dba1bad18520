"""Standard error is for what went wrong: where all goes well it stays empty."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from lightstream.runtime.settings import Settings
from tests.support.program import lightstream, program
from tests.support.waiting import eventually


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_commands_and_the_end_write_nothing_to_standard_error(tmp_path: Path, number: signal.Signals) -> None:
    settings = Settings.load(data_dir=tmp_path, kafka_bootstrap_servers=None, gateway_port=0, gateway_grpc_port=0)
    with program(settings, "up", "--policy") as up:
        up.wait_for("worker", "view", "policy", "proxy", "gateway")
        eventually(lambda: "Ctrl-C stops everything" in up.output, what="up says that all is ready")
        for command in (
            ("status",),
            ("sql", "SELECT count(*) FROM spans"),
            ("runs", "cancel", "none"),
            ("topics", "create"),
            ("broker", "status"),
            ("logs", "view"),
            ("replay",),
        ):
            done = lightstream(tmp_path, *command)
            assert (done.returncode, done.stderr) == (0, ""), command
        assert up.end(number) == 0
        assert up.errors == ""
        assert up.output.rstrip().endswith("all records are kept.")
    said = "".join(path.read_text() for path in (tmp_path / "logs").glob("*.log") if path.name != "broker.log")
    assert "|rdkafka" not in said
    assert "nanobind" not in said
    assert "Traceback" not in said


def test_a_restarted_broker_is_no_news_of_librdkafka(tmp_path: Path) -> None:
    settings = Settings.load(data_dir=tmp_path, kafka_bootstrap_servers=None, gateway_port=0, gateway_grpc_port=0)
    with program(settings, "broker", "start") as broker:
        broker.process.wait()
    with program(settings, "up", "--no-worker") as up:
        up.wait_for("view", "proxy", "gateway")
        for _ in range(2):
            assert lightstream(tmp_path, "broker", "stop").returncode == 0
            assert lightstream(tmp_path, "broker", "start").returncode == 0
        query = ("sql", "SELECT 1")
        eventually(lambda: lightstream(tmp_path, *query).returncode == 0, what="the view answers again")
        assert up.end() == 0
        assert "rdkafka" not in up.errors
    lightstream(tmp_path, "broker", "stop")
    for name in ("view", "proxy", "gateway"):
        log = (tmp_path / "logs" / f"{name}.log").read_text()
        assert "Connection refused" not in log
        assert "|rdkafka" not in log
