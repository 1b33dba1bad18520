"""Of one rollout: each call's fate, each reward's match, each break between segments, and whether it trained."""

from __future__ import annotations

import json
import re

import pytest

from lightstream.cli.explain import run_explain
from lightstream.cli.formats import Format
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import NotFoundError
from lightstream.schemas.packing import pack_int32
from lightstream.schemas.records import NoteReason
from lightstream.schemas.records.reasons import NOTE_MEANINGS
from lightstream.store_views.explain import Explanation, explain
from lightstream.store_views.server.statement import QueryLimits
from tests.store_views.exports.test_exports import asks
from tests.store_views.log_file import LogFile
from tests.store_views.test_accounting import state, step
from tests.stream_processors.assembly.build import closed, opened, proxy_span, reward_span


def explained(log: LogFile, rollout_id: str) -> Explanation:
    return explain(lambda query: log.dicts(query), rollout_id)


def test_it_tells_fates_rewards_segments_and_why_it_did_not_train(log: LogFile) -> None:
    first = opened()
    rollout_id = first.rollout.rollout_id
    log.write(state(rollout_id, group_size=2))
    log.write_and_assemble(
        first,
        proxy_span(1, prompt_token_ids=pack_int32([1, 2, 3]), response_token_ids=pack_int32([7, 8])),
        proxy_span(2, prompt_token_ids=pack_int32([1, 2, 3, 7, 8, 9]), response_token_ids=pack_int32([5, 6])),
        proxy_span(3, prompt_token_ids=pack_int32([4, 4]), response_token_ids=pack_int32([5, 6])),
        proxy_span(4, http_status=500, error_message="boom"),
        reward_span(5, 0.5),
        closed(),
    )
    found = explained(log, rollout_id)
    assert [(call["fate"], call["reason"]) for call in found.calls] == [
        ("triplet", None),
        ("triplet", None),
        ("triplet", None),
        ("dropped", "call_failed"),
    ]
    assert [(reward["value"], reward["match"]) for reward in found.rewards] == [(0.5, "trajectory")]
    assert [(s.start_reason, [turn.call_index for turn in s.turns]) for s in found.segments] == [
        ("first", [0, 1]),
        ("edited_history", [2]),
    ]
    assert [drop["reason"] for drop in found.dropped] == ["call_failed"]
    places = [(call["log_partition"], call["log_offset"]) for call in found.calls]
    places += [(drop["log_partition"], drop["log_offset"]) for drop in found.dropped]
    places += [(reward["source_partition"], reward["source_offset"]) for reward in found.rewards]
    assert places == [(0, 1), (0, 2), (0, 3), (0, 4), (0, 4), (0, 5)], "in spans, the attempt's opening before them"
    assert found.conclusion == "its group is not complete (1 of 2 rollouts are finished)"
    assert found.reason_code == "group_incomplete"


def test_it_tells_why_a_reward_is_matched_to_nothing(
    log: LogFile, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write(state("r1"))
    log.write_and_assemble(opened(), proxy_span(1), reward_span(2, 1.0, link={"gen_ai.response.id": "other"}), closed())
    found = explained(log, "r1")
    assert [reward["match"] for reward in found.rewards] == ["none"]
    assert [(note["attempt_id"], note["reason"], note["count"]) for note in found.notes] == [
        ("r1-a1", "unmatched_link", 1)
    ]
    monkeypatch.setattr("lightstream.cli.explain.ask_view", lambda _, query: asks(log)(query))
    run_explain(Settings.load(), "r1", Format.JSON)
    (note,) = json.loads(capsys.readouterr().out)["notes"]
    assert "gen_ai.response.id=other" in note["detail"]
    run_explain(Settings.load(), "r1", Format.TABLE)
    assert NOTE_MEANINGS[NoteReason.UNMATCHED_LINK] in " ".join(capsys.readouterr().out.split())


def test_it_tells_the_step_that_it_trained_in(log: LogFile) -> None:
    rollout_id = opened().rollout.rollout_id
    log.write(state(rollout_id))
    log.write_and_assemble(opened(), proxy_span(1), reward_span(2, 1.0), closed())
    log.write(step(3, (rollout_id, rollout_id)))
    assert explained(log, rollout_id).conclusion == "it trained in step 3 of t (1 call)"


def test_a_span_that_two_rollouts_hold_is_told_of_in_each(log: LogFile) -> None:
    """Repeated in its own rollout, or like another in but one of its ids, it is not."""
    call = proxy_span(1)
    for rollout_id in ("r1", "r2"):
        log.write(state(rollout_id))
        ours = call.model_copy(update={"rollout_id": rollout_id, "attempt_id": f"{rollout_id}-a1"})
        own = proxy_span(2 if rollout_id == "r1" else 3, rollout_id=rollout_id)
        other_trace = proxy_span(4, rollout_id=rollout_id).model_copy(update={"trace_id": rollout_id.rjust(32, "0")})
        log.write_and_assemble(opened(rollout_id), ours, ours, own, other_trace, closed(rollout_id))
    for rollout_id, other_id in (("r1", "r2"), ("r2", "r1")):
        (shared,) = explained(log, rollout_id).shared
        assert (shared["span_id"], shared["is_llm_call"], shared["reason"]) == (call.span_id, True, "shared_span")
        assert shared["detail"] == f"also logged under {other_id}"
        assert [found["fate"] for found in explained(log, rollout_id).calls] == ["triplet"] * 3


def test_the_command_says_where_an_answer_was_cut(
    log: LogFile, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write(state("r1"))
    log.write_and_assemble(opened(), proxy_span(1), proxy_span(2), closed())
    cut = asks(log, QueryLimits(rows_max=1))
    monkeypatch.setattr("lightstream.cli.explain.ask_view", lambda _, query: cut(query))
    run_explain(Settings.load(), "r1", Format.JSON)
    said = capsys.readouterr()
    assert [segment["calls"] for segment in json.loads(said.out)["segments"]] == [[0]]
    (more,) = [line for line in said.err.splitlines() if "FROM triplets_raw" in line]
    assert "Only the first 1 rows" in more
    rest = re.search('lightstream sql "(.*)"', more)
    assert rest is not None
    assert len(log.rows(rest[1])) == 1


def test_an_id_that_does_not_exist_or_looks_like_sql_is_an_error(log: LogFile) -> None:
    for rollout_id in ("nobody", "'; DROP TABLE spans_raw; --"):
        with pytest.raises(NotFoundError, match="not found"):
            explained(log, rollout_id)
