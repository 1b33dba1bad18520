"""A closed attempt becomes its trajectory: calls, rewards, credit, drops and notes, from the attempt buffer."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lightstream.schemas.codec.convert import from_avro
from lightstream.schemas.packing import TOKEN_BYTES
from lightstream.schemas.records import (
    AttemptClosed,
    Drop,
    DropReason,
    Note,
    NoteReason,
    SourceRange,
    Trajectory,
    TripletRecord,
)
from lightstream.schemas.sampling import NOT_RECORDED
from lightstream.schemas.valid_text import valid_text

from ..credit import CreditStep, assign
from ..rewards import MatchedRewards, match_rewards
from ._buffer import AttemptBuffer
from ._calls import Observation
from ._deduplication import Deduplicated, deduplicate
from ._reward_targets import index_calls
from ._rules import AssemblyRules
from ._trainability import find_fault
from ._tree import Tree, resolve

PROBLEM_CHARACTERS_MAX = 500
"""Of why rules cannot be used: the text may be of a module that fails to load."""

_NO_IDS: list[str] = []
_NO_SOURCES: dict[str, str] = {}
_NO_RUNS: list[dict[str, int]] = []
_NO_IMAGES: list[int] = []
"""Shared by all triplets without any: records never change."""


def finish(
    buffer: AttemptBuffer, closed: AttemptClosed, partition: int, last_offset: int, revision: int = 0
) -> Trajectory:
    """The trajectory of a closed attempt: each LLM call a triplet or a drop. Nothing but the records shapes it.

    Args:
        last_offset: of the closing record, or of the last late span that counts.
        revision: how many late spans changed the attempt since it closed.
    """
    if revision:  # it was finished before, which joined the observations in place
        for observation in buffer.observations:
            observation.reset()
    rules = buffer.rules
    tree = resolve(buffer.nodes)
    deduplicated = deduplicate(buffer.observations, tree)
    calls = deduplicated.calls
    _set_surroundings(calls, tree)
    _give_reasons(calls, rules, final=closed.final)
    rewards, credit, credit_problem = _reward(calls, buffer, tree)
    images: dict[bytes, int] = {}
    triplets = [_triplet(i, call, credit[i], images) for i, call in enumerate(calls) if call.reason is None]
    drops = _drops(calls, rewards, buffer)
    if credit_problem is not None:
        drops.append(Drop(span_id="", is_llm_call=False, reason=DropReason.BAD_REWARD, detail=credit_problem))
    rollout = buffer.opened.rollout
    return Trajectory(
        rollout_id=rollout.rollout_id,
        attempt_id=closed.attempt_id,
        attempt_sequence=closed.attempt_sequence,
        revision=revision,
        run_id=rollout.run_id,
        mode=rollout.mode,
        group_id=rollout.group_id,
        group_size=rollout.group_size,
        resources_id=rollout.resources_id,
        input_json=rollout.input_json,
        status=closed.status,
        rollout_status=closed.rollout_status,
        final=closed.final,
        reward=rewards.trajectory,
        rewards=rewards.records,
        credit=rules.credit,
        reward_match=rules.reward_match,
        triplets=triplets,
        drops=drops,
        notes=_notes(buffer, tree, deduplicated, rewards),
        span_count=len(buffer.nodes),
        call_count=len(triplets) + sum(drop.is_llm_call for drop in drops),
        error_type=closed.error_type,
        error_message=closed.error_message,
        source=SourceRange(partition=partition, first_offset=buffer.first_offset, last_offset=last_offset),
        opened_unix_nano=buffer.opened.opened_unix_nano,
        closed_unix_nano=closed.closed_unix_nano,
        revised_unix_nano=_event_time(buffer, closed) if revision else closed.closed_unix_nano,
        full_from_offset=buffer.full_from_offset,
        images=list(images),
    )


def _event_time(buffer: AttemptBuffer, closed: AttemptClosed) -> int:
    return max(closed.closed_unix_nano, *(node.end_unix_nano for node in buffer.nodes.values()))


def _reward(
    calls: Sequence[Observation], buffer: AttemptBuffer, tree: Tree
) -> tuple[MatchedRewards, list[float | None], str | None]:
    """The rewards, what each call gets of them, and, where a rule failed, why nothing."""
    rules = buffer.rules
    if rules.unusable:
        return MatchedRewards(), [None] * len(calls), valid_text(rules.unusable[:PROBLEM_CHARACTERS_MAX])
    rewards = match_rewards(buffer.rewards, index_calls(calls, buffer, tree, rules.reward_match), rules.reward_match)
    if rewards.trajectory is None and _is_of_text_alone(calls):
        # Credit gives such calls nothing, so what was given to one would be lost to queries and exports.
        rewards.trajectory = next((value for _, value in sorted(rewards.by_call.items(), reverse=True)), None)
    steps = [
        CreditStep(call.reason is None, rewards.by_call.get(i), call.agent_name, rewards.added.get(i))
        for i, call in enumerate(calls)
    ]
    credit, problem = assign(rules.credit, steps, rewards.shared)
    return rewards, credit, problem


def _is_of_text_alone(calls: Sequence[Observation]) -> bool:
    """Whether nobody recorded token ids of the attempt's calls: its agent does not use the proxy."""
    reasons = {call.reason for call in calls}
    return DropReason.NO_TOKEN_IDS in reasons and reasons <= {DropReason.NO_TOKEN_IDS, DropReason.CALL_FAILED}


def _set_surroundings(calls: Sequence[Observation], tree: Tree) -> None:
    """Agent name and reward scope, from the call's own span, else from the other spans that describe it."""
    agents: dict[str, str] = {}
    for call in calls:
        for observation in (call, *call.joined) if call.joined else (call,):
            around = tree.inherited[observation.key]
            call.in_reward = call.in_reward or around.in_reward
            if call.agent_name is None and around.agent_name is not None:
                call.agent_name = around.agent_name
                if observation is not call:
                    call.note_source("agent_name", f"{observation.key[1]}:span")
        response = call.read.response_id
        if response is not None and call.agent_name is not None:
            agents.setdefault(response, call.agent_name)
    for call in calls:  # other choices of the same response
        if call.agent_name is None and call.read.response_id is not None:
            call.agent_name = agents.get(call.read.response_id)


def _give_reasons(calls: Sequence[Observation], rules: AssemblyRules, *, final: bool) -> None:
    """Give each call that cannot become a triplet its reason."""
    selected = re.compile(rules.agents) if rules.agents is not None else None
    for call in calls:
        if not final:
            call.reason, call.detail = DropReason.ATTEMPT_NOT_FINAL, "another attempt of the rollout follows"
        elif call.in_reward and rules.exclude_calls_in_rewards:
            call.reason, call.detail = DropReason.INSIDE_REWARD, "the call was made while computing a reward"
        elif selected is not None and not selected.search(call.agent_name or ""):
            call.reason = DropReason.AGENT_NOT_SELECTED
            call.detail = f"agent {call.agent_name!r} does not match {rules.agents!r}"
        else:
            filled = call.field_sources is not None
            fault = find_fault(call.read) if filled else call.fault
            if fault is not None:
                call.reason, call.detail = fault


def _triplet(call_index: int, call: Observation, reward: float | None, images: dict[bytes, int]) -> TripletRecord:
    """The triplet of a call; ``images`` numbers those of the trajectory, and takes in those that are new."""
    read = call.read
    assert read.prompt_token_ids is not None  # noqa: S101  # checked: the call has no reason to be dropped
    assert read.response_token_ids is not None  # noqa: S101  # a call without has its reason and is not a triplet
    values = {  # every field, each of its type: built as the codec builds decoded records, without a second validation
        "call_index": call_index,
        "span_id": call.key[1],
        "trace_id": call.key[0],
        "response_id": read.response_id,
        "agent_name": call.agent_name,
        "model": read.model,
        "policy_version": read.policy_version,
        "prompt_token_ids": read.prompt_token_ids,
        "response_token_ids": read.response_token_ids,
        "response_logprobs": read.response_logprobs,
        "response_mask": b"\x01" * (len(read.response_token_ids) // TOKEN_BYTES),
        "reward": reward,
        "finish_reason": read.finish_reason,
        "start_unix_nano": call.start_unix_nano,
        "end_unix_nano": call.end_unix_nano,
        "source_offset": call.offset,
        "choice_index": read.choice_index,
        "dialect": read.dialect,
        "joined_span_ids": [other.key[1] for other in call.joined] if call.joined else _NO_IDS,
        "field_sources": call.field_sources or _NO_SOURCES,
        "policy_version_runs": [run.model_dump() for run in read.policy_version_runs]
        if read.policy_version_runs
        else _NO_RUNS,
        "images": [images.setdefault(image, len(images)) for image in read.images] if read.images else _NO_IMAGES,
        "resources_id": read.resources_id,
        "sampling_json": NOT_RECORDED if read.sampling_json is None else read.sampling_json,
    }
    return from_avro(TripletRecord, values)


def _drops(calls: Sequence[Observation], rewards: MatchedRewards, buffer: AttemptBuffer) -> list[Drop]:
    """Everything that became no training data, in log order."""
    drops = list(buffer.conflicts.values())
    for index, call in enumerate(calls):
        if call.reason is not None:
            drops.append(_drop(call, call.reason, call.detail, index))
        if call.joined:
            drops.extend(drop for other in call.joined if (drop := _duplicate(other, call)) is not None)
    drops.extend(
        Drop(
            span_id=reading.span_id,
            trace_id=reading.trace_id,
            is_llm_call=False,
            reason=DropReason.BAD_REWARD,
            detail=problem,
            source_offset=reading.offset,
        )
        for reading, problem in rewards.problems
    )
    drops.sort(key=lambda drop: drop.source_offset)
    return drops


def _duplicate(other: Observation, call: Observation) -> Drop | None:
    """A recorded call that another record represents; or other tokens that were reported for the same response."""
    if other.recorded:
        drop = _drop(other, DropReason.DUPLICATE_CALL, f"the same call as span {call.key[1]}")
    elif other.token_ids is not None and other.token_ids != call.token_ids:
        drop = _drop(other, DropReason.DUPLICATE_CALL, f"different tokens from span {call.key[1]} for the call")
        drop = drop.model_copy(update={"is_llm_call": False})
    else:
        return None
    return drop


def _drop(observation: Observation, reason: DropReason, detail: str, call_index: int | None = None) -> Drop:
    return Drop(
        span_id=observation.key[1],
        trace_id=observation.key[0],
        response_id=observation.read.response_id,
        reason=reason,
        detail=detail,
        choice_index=observation.read.choice_index,
        source_offset=observation.offset,
        call_index=call_index,
        agent_name=observation.agent_name,
        model=observation.read.model,
    )


def _notes(buffer: AttemptBuffer, tree: Tree, deduplicated: Deduplicated, rewards: MatchedRewards) -> list[Note]:
    """Notes on what is malformed without costing the attempt anything, in the order of :class:`NoteReason`."""
    without_times = [key[1] for key, node in buffer.nodes.items() if not node.has_times]
    nested = [other.key[1] for call in deduplicated.calls for other in call.joined]
    nested += [wrapper.key[1] for wrapper in deduplicated.wrappers]
    # Of calls that no record of the proxy tells of: that one has the conversation whole.
    told = [
        (call.key[1], buffer.nodes[call.key])
        for call in deduplicated.calls
        if not any(observation.recorded for observation in (call, *call.joined))
    ]
    incomplete = [(span_id, node.incomplete) for span_id, node in told if node.incomplete]
    left_out = [(span_id, node.left_out) for span_id, node in told if node.left_out]
    notes = [
        _note(
            NoteReason.PARENT_CYCLE, [k[1] for k in tree.cycles], "spans are among their own parents; the link is cut"
        ),
        _note(NoteReason.MISSING_PARENT, [k[1] for k in tree.missing_parents], "the parent is not in the attempt"),
        _note(NoteReason.MISSING_TIME, without_times, "start or end is missing"),
        _note(NoteReason.JOINED_CALL, nested, "the span describes a call that another span represents"),
        _note(NoteReason.UNMATCHED_LINK, [s for s, _ in rewards.unmatched], _first_detail(rewards)),
        _note(
            NoteReason.UNATTRIBUTED_CALL,
            [observation.key[1] for observation in deduplicated.unattributed],
            "the span names no response and has no tokens; the proxy recorded the calls",
        ),
        _note(NoteReason.INCOMPLETE_MESSAGES, [s for s, _ in incomplete], incomplete[0][1] if incomplete else ""),
        _note(NoteReason.CONTENT_LEFT_OUT, [s for s, _ in left_out], left_out[0][1] if left_out else ""),
    ]
    return [note for note in notes if note is not None]


def _note(reason: NoteReason, span_ids: Sequence[str], detail: str) -> Note | None:
    return Note(reason=reason, span_id=span_ids[0], count=len(span_ids), detail=detail) if span_ids else None


def _first_detail(rewards: MatchedRewards) -> str:
    return f"a reward names no call of the attempt: {rewards.unmatched[0][1]}" if rewards.unmatched else ""
