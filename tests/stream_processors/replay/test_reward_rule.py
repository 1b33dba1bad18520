"""What a user's reward rule may give."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from lightstream.schemas.records import DropReason
from lightstream.stream_processors.replay.reward_rule import ReplayedAttempt, load_reward_rule, reward_again
from tests.stream_processors.assembly.build import assemble, proxy_span, reward_span

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("value", [math.nan, -math.inf, -1e39, {None: 1e39}, {0: -1e39}])
def test_what_is_no_finite_number_within_float32_is_missing_and_says_so(value: object) -> None:
    call = proxy_span(1)
    attempt = ReplayedAttempt(assemble(call, reward_span(2, 0.5)), [call])
    again = reward_again(lambda _: value, attempt, "identical")  # type: ignore[arg-type,return-value]  # wrong on purpose
    assert (again.reward, [triplet.reward for triplet in again.triplets]) == (None, [None])
    assert [drop.reason for drop in again.drops] == [DropReason.BAD_REWARD]


def test_an_answer_of_parts_is_their_text() -> None:
    parts = [{"type": "text", "text": "4"}, {"type": "text", "text": "2"}]
    call = proxy_span(1, response_json=json.dumps({"role": "assistant", "content": parts}))
    assert ReplayedAttempt(assemble(call), [call]).calls[-1].answer == "42"


def test_the_rule_of_the_page_takes_the_last_score_else_the_recorded_reward(tmp_path: Path) -> None:
    page = (DOCS / "training.md").read_text("utf-8")
    (rule,) = re.findall(r"^```python no-run\n(def reward\(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "rule.py").write_text(rule, "utf-8")
    reward = load_reward_rule(str(tmp_path / "rule.py"))
    call, own = proxy_span(1), reward_span(2, 0.5)
    scores = [reward_span(3, {"feedback": 0.0}), reward_span(4, {"feedback": 1.0})]
    of_call = reward_span(5, {"feedback": 0.25}, link={"span_id": call.span_id})
    assert reward(ReplayedAttempt(assemble(call, own), [])) == 0.5
    assert reward(ReplayedAttempt(assemble(call, own, *scores, of_call, reward_span(6, {"brief": 0.75})), [])) == 1.0
