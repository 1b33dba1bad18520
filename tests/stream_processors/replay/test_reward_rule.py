"""What a user's reward rule may give."""

from __future__ import annotations

import json
import math

import pytest

from lightstream.schemas.records import DropReason
from lightstream.stream_processors.replay.reward_rule import ReplayedAttempt, reward_again
from tests.stream_processors.assembly.build import assemble, proxy_span, reward_span


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
