"""``lightstream export`` on what a view held when everything was stopped."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lightstream.runtime.processes import child_environment
from lightstream.runtime.settings import Settings
from lightstream.store_views.materialiser import default_path
from lightstream.trainers.algorithms.recorded import read_recording
from tests.store_views.log_file import open_log_file
from tests.stream_processors.assembly.build import closed, opened, proxy_span, reward_span


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    (tmp_path / "view").mkdir()
    with open_log_file(default_path(Settings.load(data_dir=tmp_path))) as log:
        asked = {"messages": [{"role": "user", "content": "Weather?"}]}
        answered = {"role": "assistant", "content": "Fine."}
        call = proxy_span(1, request_json=json.dumps(asked), response_json=json.dumps(answered))
        log.write_and_assemble(opened(), call, proxy_span(2), reward_span(3, 1.0), closed())
        log.write_and_assemble(opened("other"), proxy_span(4, rollout_id="other"), closed("other"))
    return tmp_path


def export(data_dir: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lightstream.cli", "export", *arguments],
        env=child_environment(Settings.load(data_dir=data_dir)),
        capture_output=True,
        text=True,
        check=False,
    )


def test_parquet_of_some_trajectories(data_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "calls.parquet"
    done = export(data_dir, "parquet", str(out), "--where", "reward = 1")
    assert (done.returncode, "2 rows" in done.stderr) == (0, True), done.stderr
    assert pq.read_table(out, columns=["rollout_id"]).to_pydict() == {"rollout_id": ["r1", "r1"]}


def test_chat_lines_and_atif(data_dir: Path, tmp_path: Path) -> None:
    chat, atif = tmp_path / "chat.jsonl", tmp_path / "atif.jsonl"
    assert export(data_dir, "chat", str(chat)).returncode == 0
    (line,) = map(json.loads, chat.read_text().splitlines())
    assert [message["content"] for message in line["messages"]] == ["Weather?", "Fine."]
    assert export(data_dir, "atif", str(atif)).returncode == 0
    first, _ = map(json.loads, atif.read_text().splitlines())
    assert (first["session_id"], len(first["steps"])) == ("r1", 3)


def test_a_recording_is_what_a_training_reads(data_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "recording.jsonl"
    done = export(data_dir, "recording", str(out))
    assert (done.returncode, "2 trajectories" in done.stderr) == (0, True), done.stderr
    first, second = read_recording(out)
    assert (first.rollout_id, first.reward, len(first.triplets)) == ("r1", 1.0, 2)
    assert (second.rollout_id, second.reward, len(second.triplets)) == ("other", None, 1)


def test_a_wrong_condition_is_one_message(data_dir: Path, tmp_path: Path) -> None:
    done = export(data_dir, "parquet", str(tmp_path / "x"), "--where", "no_such_column = 1")
    assert done.returncode == 1
    assert "no_such_column" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "x").exists()
