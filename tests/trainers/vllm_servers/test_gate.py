"""The gate: who is inside goes on, who comes waits, and nobody is forgotten."""

from __future__ import annotations

import asyncio

from lightstream.trainers.servers.vllm.gate import Gate


async def test_a_closed_gate_waits_for_those_inside_and_holds_others_back() -> None:
    gate = Gate()
    await gate.enter()
    gate.close()
    assert not gate.drained(0.0)
    other = asyncio.ensure_future(gate.enter())
    await asyncio.sleep(0)
    assert not other.done()
    gate.leave()
    assert await asyncio.to_thread(gate.drained, 60.0)
    gate.open()
    await other
    assert gate.inside == 1


async def test_it_opens_when_each_who_closed_it_has_opened_it() -> None:
    gate = Gate()
    gate.close()
    gate.close()
    waiting = asyncio.ensure_future(gate.enter())
    await asyncio.sleep(0)
    await asyncio.to_thread(gate.open)
    await asyncio.sleep(0)
    assert not waiting.done()
    await asyncio.to_thread(gate.open)
    await waiting
    assert gate.inside == 1


async def test_who_gives_up_waiting_is_not_inside() -> None:
    gate = Gate()
    gate.close()
    waiting = asyncio.ensure_future(gate.enter())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    gate.open()
    assert gate.inside == 0
    assert gate.drained(0.0)
