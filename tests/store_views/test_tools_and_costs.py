"""Runs of tools with their agents and errors, and costs of calls, where several tell of one thing."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lightstream.schemas.records import SpanEventRecord, SpanStatus
from tests.store_views.log_file import LogFile
from tests.stream_processors.assembly.build import closed, framework_span, opened, proxy_span

from .test_accounting import state

TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
WITH_DATA = TOOL | {
    "gen_ai.tool.call.id": "c1",
    "gen_ai.tool.call.arguments": '{"q": 1}',
    "gen_ai.tool.call.result": "found",
}
RAISED = {"exception.type": "ValueError", "exception.message": "no network"}
AGENT = {"gen_ai.agent.name": "planner"}
PRICES = pa.schema(
    [("model", pa.string())]
    + [(name, pa.float64()) for name in ("prompt_price", "response_price", "cached_price")]
    + [("given", pa.bool_())]
)


def test_a_tool_has_the_agent_above_it_its_data_and_its_error(log: LogFile) -> None:
    log.write(state("r1", run_id="a"))
    log.write_and_assemble(
        opened(run_id="a"),
        framework_span(1, AGENT),
        framework_span(2, parent=1),
        framework_span(3, parent=2),
        framework_span(4, WITH_DATA, parent=3),
        framework_span(
            5,
            TOOL,
            parent=1,
            status=SpanStatus.ERROR,
            events=[SpanEventRecord(name="exception", attributes=RAISED)],
        ),
        framework_span(6, TOOL | {"error.type": "timeout"}),
        proxy_span(7),
        closed(),
    )
    assert log.rows(
        "SELECT run_id, agent_name, model, tool_name, tool_call_id, arguments, result, failed, error_type, "
        "error_message FROM tools ORDER BY span_id"
    ) == [
        ("a", "planner", "policy", "search", "c1", '{"q": 1}', "found", False, None, None),
        ("a", "planner", "policy", "search", None, None, None, True, "ValueError", "no network"),
        ("a", "agent", "policy", "search", None, None, None, True, "timeout", ""),
    ]


def test_a_run_of_a_tool_that_two_libraries_tell_of_or_that_came_twice_is_one(log: LogFile) -> None:
    inner = framework_span(2, {"openinference.span.kind": "TOOL", "tool.name": "search"}, parent=1)
    log.write_and_assemble(opened(), framework_span(1, TOOL), inner, inner, framework_span(3, TOOL), closed())
    assert log.rows("SELECT span_id FROM tools ORDER BY span_id") == [(f"{1:016x}",), (f"{3:016x}",)]


def costs_of(log: LogFile, *prices: tuple[str, float, float, float | None]) -> list[tuple[object, ...]]:
    rows = [dict(zip(PRICES.names, (*price, True), strict=True)) for price in prices]
    log.database.replace_rows("prices", pa.Table.from_pylist(rows, schema=PRICES))
    return log.rows("SELECT price_of, prompt_tokens, response_tokens, cost FROM costs ORDER BY span_id, choice_index")


def test_a_version_has_its_own_price_else_that_of_the_model(log: LogFile) -> None:
    log.write_and_assemble(opened(), proxy_span(1, response_model="m-2024-07-18", requested_model="alias"), closed())
    family, asked, exact = ("m", 1e6, 1e6, None), ("alias", 2e6, 2e6, None), ("m-2024-07-18", 3e6, 3e6, None)
    assert costs_of(log) == [(None, 3, 2, None)]
    assert costs_of(log, family) == [("m", 3, 2, 5.0)]
    assert costs_of(log, family, asked) == [("alias", 3, 2, 10.0)]
    assert costs_of(log, family, asked, exact) == [("m-2024-07-18", 3, 2, 15.0)]


@pytest.mark.parametrize(("cached_price", "cost"), [(None, 10 * 1.0 + 2 * 2.0), (0.5, 4 * 1.0 + 6 * 0.5 + 2 * 2.0)])
def test_tokens_from_the_cache_have_their_price(log: LogFile, cached_price: float | None, cost: float) -> None:
    usage = {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.model": "m",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.cache_read.input_tokens": 6,
        "gen_ai.usage.output_tokens": 2,
    }
    log.write_and_assemble(opened(), framework_span(1, usage), closed())
    assert costs_of(log, ("m", 1e6, 2e6, None if cached_price is None else cached_price * 1e6)) == [
        ("m", 10, 2, pytest.approx(cost))
    ]


def test_choices_share_their_prompt_and_a_call_that_two_recorded_costs_once(log: LogFile) -> None:
    log.write_and_assemble(
        opened(),
        proxy_span(1, response_id="x", response_model="m", choice_index=0),
        proxy_span(2, response_id="x", response_model="m", choice_index=1),
        proxy_span(3, response_id="x", response_model="m", choice_index=1),
        closed(),
    )
    assert costs_of(log, ("m", 1e6, 1e6, None)) == [("m", 3, 2, 5.0), ("m", 0, 2, 2.0)]
